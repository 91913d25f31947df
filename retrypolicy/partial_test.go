//go:build !tinygo

package retrypolicy_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// partial are the policies whose fields a program may leave out, each by its zero value, and the
// presets. The test below looks whether one is missing.
var partial = map[string]retrypolicy.Policy{
	"AWSGoBackoff":                 retrypolicy.AWSGoBackoff{},
	"AzureC":                       retrypolicy.AzureC{},
	"AzureCSharpV1":                retrypolicy.AzureCSharpV1{},
	"AzureJava":                    retrypolicy.AzureJava{},
	"AzureNode":                    retrypolicy.AzureNode{},
	"AzureNodeDocumented":          retrypolicy.AzureNodeDocumented(),
	"Azcore":                       retrypolicy.Azcore{},
	"Backoff":                      retrypolicy.Backoff{},
	"ByKind":                       retrypolicy.ByKind{},
	"CSharpExponential":            retrypolicy.CSharpExponential{},
	"CSharpFixed":                  retrypolicy.CSharpFixed{},
	"CSharpIncremental":            retrypolicy.CSharpIncremental{},
	"Cenkalti":                     retrypolicy.Cenkalti{},
	"CenkaltiV4":                   retrypolicy.CenkaltiV4(),
	"ExponentialBackoffWithJitter": retrypolicy.ExponentialBackoffWithJitter{},
	"Failsafe":                     retrypolicy.Failsafe{},
	"FetchRetry":                   retrypolicy.FetchRetry{},
	"Fixed":                        retrypolicy.Fixed{},
	"Func":                         retrypolicy.Func(nil),
	"GRPC":                         retrypolicy.GRPC{},
	"Immediately":                  retrypolicy.Immediately{},
	"Incremental":                  retrypolicy.Incremental{},
	"IoTOperations":                retrypolicy.IoTOperations(),
	"MaxAttempts":                  retrypolicy.MaxAttempts{},
	"MaxElapsed":                   retrypolicy.MaxElapsed{},
	"NewFetchRetry":                retrypolicy.NewFetchRetry(),
	"NoRetry":                      retrypolicy.NoRetry{},
	"PerKey":                       (*retrypolicy.PerKey)(nil),
	"Polly":                        retrypolicy.Polly{},
	"RetryAfter":                   retrypolicy.RetryAfter{},
	"RetryableHTTP":                retrypolicy.RetryableHTTP{},
	"SafeOnly":                     retrypolicy.SafeOnly{},
	"Truncated":                    retrypolicy.Truncated(),
	"TruncatedExponential":         retrypolicy.TruncatedExponential{},
}

// TestThePartialPoliciesAreAll compares the list with the package's source: every exported type
// with a method Decide, and every exported function without parameters that returns such a type.
func TestThePartialPoliciesAreAll(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	makers := map[string]string{}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			switch {
			case f.Recv != nil && f.Name.Name == "Decide":
				declared[typeName(f.Recv.List[0].Type)] = true
			case f.Recv == nil && f.Type.Params.NumFields() == 0 && f.Type.Results.NumFields() == 1:
				makers[f.Name.Name] = typeName(f.Type.Results.List[0].Type)
			}
		}
	}
	for name := range declared {
		if ast.IsExported(name) && partial[name] == nil {
			t.Errorf("%s is a policy and not in the list", name)
		}
	}
	for name, result := range makers {
		if declared[result] && partial[name] == nil {
			t.Errorf("%s makes a policy and is not in the list", name)
		}
	}
	if len(declared) < 25 || len(makers) < 5 {
		t.Errorf("only %d policies and %d functions found", len(declared), len(makers))
	}
}

func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// saysSo reports whether p asks by name for retries without delay.
func saysSo(p retrypolicy.Policy) bool {
	switch p := p.(type) {
	case retrypolicy.Immediately:
		return true
	case retrypolicy.AzureC:
		return p.Curve == retrypolicy.CImmediate
	case retrypolicy.Azcore:
		return p.Delay < 0
	case retrypolicy.Failsafe:
		return p == (retrypolicy.Failsafe{}) // two retries without delay: the library's default
	}
	return false
}

// TestWhatIsLeftOutWaitsOrIsRefused fills every subset of the fields of every policy. What Validate
// lets pass waits, or makes no retry; what it refuses names a field of the policy and says what to
// give.
func TestWhatIsLeftOutWaitsOrIsRefused(t *testing.T) {
	accepted, refused := 0, 0
	for name, zero := range partial {
		for _, p := range fillings(zero) {
			err := retrypolicy.Validate(p)
			switch {
			case err == nil:
				accepted++
				if !saysSo(p) && !doesWait(p) {
					t.Errorf("%s: %+v is accepted, and all of its delays are 0", name, p)
				}
			case !errors.Is(err, transport.Invalid) || !namesAField(zero, err.Error()) || !strings.Contains(err.Error(), "; "):
				t.Errorf("%s: %+v: %v: the error does not name a field and the fix", name, p, err)
			default:
				refused++
			}
		}
	}
	if accepted < 500 || refused < 300 {
		t.Errorf("%d accepted and %d refused is too few to mean something", accepted, refused)
	}
}

func namesAField(p retrypolicy.Policy, text string) bool {
	typ := reflect.TypeOf(p)
	if typ.Kind() != reflect.Struct {
		return strings.Contains(text, strings.TrimPrefix(typ.String(), "retrypolicy.")) || strings.Contains(text, "use New")
	}
	for i := range typ.NumField() {
		if strings.Contains(text, typ.Name()+"."+typ.Field(i).Name) {
			return true
		}
	}
	return false
}

// fillings returns p with every subset of its fields filled, and each curve.
func fillings(p retrypolicy.Policy) []retrypolicy.Policy {
	typ := reflect.TypeOf(p)
	if typ.Kind() != reflect.Struct || typ.NumField() == 0 {
		return []retrypolicy.Policy{p}
	}
	values := make([][]reflect.Value, typ.NumField())
	for i := range values {
		field := reflect.ValueOf(p).Field(i)
		values[i] = append(values[i], field)
		add := func(all ...any) {
			for _, v := range all {
				values[i] = append(values[i], reflect.ValueOf(v).Convert(field.Type()))
			}
		}
		switch field.Interface().(type) {
		case time.Duration:
			add(time.Second, time.Minute)
		case int:
			add(7)
		case float64:
			add(0.5)
		case bool:
			add(true)
		default:
			if field.Kind() == reflect.Uint8 { // the curves and modes, and one that is undefined
				for n := range 8 {
					add(n + 1)
				}
			} else if field.Kind() == reflect.Interface {
				add(retrypolicy.Fixed{Delay: time.Second})
			}
		}
	}
	all := []retrypolicy.Policy{}
	var fill func(v reflect.Value, i int)
	fill = func(v reflect.Value, i int) {
		if i == len(values) {
			all = append(all, v.Interface().(retrypolicy.Policy))
			return
		}
		for _, value := range values[i] {
			next := reflect.New(typ).Elem()
			next.Set(v)
			next.Field(i).Set(value)
			fill(next, i+1)
		}
	}
	fill(reflect.ValueOf(p), 0)
	return all
}

// doesWait reports whether the retries of p have a delay for each Kind: not each of them, as many a
// curve begins with none.
func doesWait(p retrypolicy.Policy) bool {
	for _, kind := range []transport.Kind{transport.Network, transport.Timeout, transport.Unavailable,
		transport.Throttled} {
		longest, retries := time.Duration(0), 0
		for _, draw := range []uint64{drawHalf, drawLast} { // the least draw of some jitters is 0
			var last retrypolicy.Decision
			for n := 1; n <= 12; n++ {
				d := p.Decide(ask(n, kind, draw, 0, last))
				if !d.Retry {
					break
				}
				retries++
				longest, last = max(longest, d.Delay), d
			}
		}
		if retries > 2 && longest == 0 { // one retry for each draw: the fast first one
			return false
		}
	}
	return true
}

// Presets of AWS are valid, and wait.
func TestAWSPresetsWait(t *testing.T) {
	for name, o := range map[string]retrypolicy.AWSOptions{
		"AWS2026": retrypolicy.AWS2026(), "AWSKotlin": retrypolicy.AWSKotlin(), "AWSBotocore": retrypolicy.AWSBotocore(),
		"AWSDynamoDB":               retrypolicy.AWSDynamoDB(),
		"AWSBotocoreLegacy":         retrypolicy.AWSBotocoreLegacy(),
		"AWSBotocoreLegacyDynamoDB": retrypolicy.AWSBotocoreLegacyDynamoDB(),
		"AWSPython":                 retrypolicy.AWSPython(),
		"AWSPythonSimple":           retrypolicy.AWSPythonSimple(), "AWSGo": retrypolicy.AWSGo(),
		"AWSGo2026":   retrypolicy.AWSGo2026(),
		"AWSJava":     retrypolicy.AWSJava(),
		"AWSJava2026": retrypolicy.AWSJava2026(), "AWSJavaLegacy": retrypolicy.AWSJavaLegacy(), "AWSJS": retrypolicy.AWSJS(),
	} {
		p, err := retrypolicy.NewAWS(o)
		if err != nil || !doesWait(p) {
			t.Errorf("%s: %v, or no delays", name, err)
		}
	}
	_, err := retrypolicy.NewAWS(retrypolicy.AWSOptions{Attempts: 3, Backoff: retrypolicy.Backoff{}})
	checkRefusal(t, err, "Backoff.Base")
	if _, err := retrypolicy.NewAWS(retrypolicy.AWSOptions{}); err == nil || !strings.Contains(fmt.Sprint(err),
		"AWSOptions.Backoff") {
		t.Error(err)
	}
}
