//go:build !tinygo

package compat_test

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// partial has the zero value of every policy whose fields a program may leave out, and the presets.
// The test below checks that it is complete.
var partial = map[string]retrypolicy.Policy{
	"compat.AWSGoBackoff":                      compat.AWSGoBackoff{},
	"compat.AzureCSharp":                       compat.AzureCSharp{},
	"compat.AzureC":                            compat.AzureC{},
	"compat.AzureCSharpV1":                     compat.AzureCSharpV1{},
	"compat.AzureJava":                         compat.AzureJava{},
	"compat.AzureNode":                         compat.AzureNode(),
	"compat.AzureNodeDocumented":               compat.AzureNodeDocumented(),
	"compat.Azcore":                            compat.Azcore{},
	"retrypolicy.Backoff":                      retrypolicy.Backoff{},
	"retrypolicy.ByKind":                       retrypolicy.ByKind{},
	"compat.Cenkalti":                          compat.Cenkalti(),
	"compat.CenkaltiV4":                        compat.CenkaltiV4(),
	"retrypolicy.ExponentialBackoffWithJitter": retrypolicy.ExponentialBackoffWithJitter{},
	"compat.Failsafe":                          compat.Failsafe{},
	"compat.FetchRetry":                        compat.FetchRetry{},
	"retrypolicy.Fixed":                        retrypolicy.Fixed{},
	"retrypolicy.Func":                         retrypolicy.Func(nil),
	"compat.GRPC":                              compat.GRPC{},
	"retrypolicy.Immediately":                  retrypolicy.Immediately{},
	"retrypolicy.Incremental":                  retrypolicy.Incremental{},
	"compat.AzureIoTOperations":                compat.AzureIoTOperations(),
	"retrypolicy.MaxAttempts":                  retrypolicy.MaxAttempts{},
	"retrypolicy.MaxElapsed":                   retrypolicy.MaxElapsed{},
	"compat.FetchRetryDefaults":                compat.FetchRetryDefaults(),
	"retrypolicy.NoRetry":                      retrypolicy.NoRetry{},
	"budget.PerKey":                            (*budget.PerKey)(nil),
	"compat.Polly":                             compat.Polly{},
	"retrypolicy.RetryAfter":                   retrypolicy.RetryAfter{},
	"compat.RetryableHTTP":                     compat.RetryableHTTP{},
	"retrypolicy.SafeOnly":                     retrypolicy.SafeOnly{},
	"compat.Truncated":                         compat.Truncated(),
	"compat.TruncatedExponential":              compat.TruncatedExponential{},
}

// TestThePartialPoliciesAreAll compares the list with the packages' source: every exported type
// with a method Decide, and every exported function without parameters that returns such a type.
func TestThePartialPoliciesAreAll(t *testing.T) {
	var files []string
	for _, dir := range []string{"..", "../budget", "."} {
		found, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	declared := map[string]bool{}
	makers := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		qualified := func(e ast.Expr) string { return file.Name.Name + "." + typeName(e) }
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			switch {
			case f.Recv != nil && f.Name.Name == "Decide":
				declared[qualified(f.Recv.List[0].Type)] = true
			case f.Recv == nil && f.Type.Params.NumFields() == 0 && f.Type.Results.NumFields() == 1:
				makers[file.Name.Name+"."+f.Name.Name] = qualified(f.Type.Results.List[0].Type)
			}
		}
	}
	for name := range declared {
		if ast.IsExported(name[strings.IndexByte(name, '.')+1:]) && partial[name] == nil {
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

// saysSo reports whether p requests retries without delay by its name.
func saysSo(p retrypolicy.Policy) bool {
	switch p := p.(type) {
	case retrypolicy.Immediately:
		return true
	case compat.AzureC:
		return p.Curve == compat.AzureCImmediate
	case compat.Azcore:
		return p.Delay < 0
	case compat.Failsafe:
		return p == (compat.Failsafe{}) // two retries without delay: the library's default
	}
	return false
}

// TestZeroFieldsWaitOrAreRefused fills every subset of the fields of every policy. A policy that
// Validate accepts must wait or make no retry. A refusal must name a field and say what to give.
func TestZeroFieldsWaitOrAreRefused(t *testing.T) {
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
		return strings.Contains(text, typ.String()[strings.IndexByte(typ.String(), '.')+1:]) || strings.Contains(text,
			"use New")
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
			if field.Kind() == reflect.Uint8 { // the curves and modes, and an undefined one
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

// doesWait reports whether the retries of p have a delay for each Kind. Single delays may be 0, as
// many curves begin without one.
func doesWait(p retrypolicy.Policy) bool {
	for _, kind := range []transport.Kind{transport.Network, transport.Timeout, transport.Unavailable,
		transport.Throttled} {
		longest, retries := time.Duration(0), 0
		for _, draw := range []uint64{policytest.DrawHalf, policytest.DrawLast} { // the lowest draw of some jitters is 0
			series := policytest.Series(p)
			for n := 1; n <= 12; n++ {
				d := series.Decide(ask(n, kind, draw, 0))
				if !d.Retry {
					break
				}
				retries++
				longest = max(longest, d.Delay)
			}
		}
		if retries > 2 && longest == 0 { // one retry for each draw: the fast first one
			return false
		}
	}
	return true
}
