package policies

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/retrypolicy"
)

func TestEachPolicyHasItsName(t *testing.T) {
	for _, p := range All {
		policy, err := Parse(p.Name)
		require.NoError(t, err, p.Name)
		require.NotNil(t, policy)
		for _, parameter := range append(p.Parameters, common...) {
			_, err := Parse(p.Name + ":" + parameter)
			require.NoError(t, err, "a parameter accepts its default: %s", parameter)
		}
	}
}

func TestParametersReachThePolicy(t *testing.T) {
	for text, want := range map[string]retrypolicy.Policy{
		"azure:cmax=1m": retrypolicy.ExponentialBackoffWithJitter{C: 100 * time.Millisecond,
			Cmin: 100 * time.Millisecond, Cmax: time.Minute, Jd: 0.5, Ju: 0.25},
		"fixed:delay=3s,jitter=0":   retrypolicy.Fixed{Delay: 3 * time.Second},
		"incremental:max=5s":        retrypolicy.Incremental{Step: time.Second, Max: 5 * time.Second, Jitter: 0.2},
		"exponential:jitter=none":   retrypolicy.Backoff{Base: 100 * time.Millisecond, Factor: 2, Max: 10 * time.Second},
		"none:attempts=3":           retrypolicy.MaxAttempts{Total: 3, Policy: retrypolicy.NoRetry{}},
		"immediately:elapsed=1m30s": retrypolicy.MaxElapsed{Limit: 90 * time.Second, Policy: retrypolicy.Immediately{}},
	} {
		policy, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, policy, text)
	}
}

func TestWrongParametersAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"":                        "one of azure",
		"hope":                    "one of azure",
		"fixed:delay":             "delay=1s",
		"fixed:speed=3":           "delay=1s",
		"fixed:delay=fast":        "10s",
		"fixed:delay=-1s":         "10s",
		"fixed:delay=0":           "Delay",
		"fixed:jitter=x":          "0.5",
		"exponential:jitter=much": "decorrelated",
		"azure:attempts=-1":       "attempts",
		"azure:ju=0.9":            "Ju",
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want, text)
	}
}

// The policies that have no delays of their own: limits, wrappers, and a function of the user's.
var withoutDelays = []string{"MaxAttempts", "MaxElapsed", "RetryAfter", "SafeOnly", "ByKind", "Func"}

func TestEveryExportedPolicyHasAName(t *testing.T) {
	reached := map[string]bool{}
	for _, p := range All {
		policy, err := Parse(p.Name)
		require.NoError(t, err)
		reach(reflect.ValueOf(policy), reached)
	}
	for _, pattern := range []string{"../../retrypolicy/*.go", "../../retrypolicy/compat/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			for _, d := range file.Decls {
				f, ok := d.(*ast.FuncDecl)
				if !ok || f.Recv == nil || f.Name.Name != "Decide" || strings.HasSuffix(name, "_test.go") {
					continue
				}
				typ, ok := f.Recv.List[0].Type.(*ast.Ident)
				if ok && typ.IsExported() && !slices.Contains(withoutDelays, typ.Name) {
					require.True(t, reached[typ.Name], "%s is in no row", typ.Name)
				}
			}
		}
	}
}

// reach notes the names of a policy's type and of those inside it.
func reach(v reflect.Value, names map[string]bool) {
	names[v.Type().Name()] = true
	switch v.Kind() {
	case reflect.Interface, reflect.Pointer:
		if !v.IsNil() {
			reach(v.Elem(), names)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			reach(v.Field(i), names)
		}
	case reflect.Slice:
		for i := range v.Len() {
			reach(v.Index(i), names)
		}
	}
}
