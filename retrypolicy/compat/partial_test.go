//go:build !tinygo

package compat_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// partial has the zero value of every policy whose fields a program may leave out, and the presets:
// those of the vectors, and these.
func partial() []retrypolicy.Policy {
	return slices.AppendSeq([]retrypolicy.Policy{
		compat.AzureIoTOperations(), compat.Cenkalti(), compat.FetchRetry{}, compat.FetchRetryDefaults(),
		retrypolicy.ByKind{}, retrypolicy.Func(nil), retrypolicy.Immediately{}, retrypolicy.MaxAttempts{},
		retrypolicy.MaxElapsed{}, retrypolicy.NoRetry{}, retrypolicy.RetryAfter{}, retrypolicy.SafeOnly{},
		(*budget.PerKey)(nil),
	}, maps.Values(vectorPolicies))
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
	for _, zero := range partial() {
		for _, p := range fillings(zero) {
			err := retrypolicy.Validate(p)
			switch {
			case err == nil:
				accepted++
				if !saysSo(p) && !doesWait(p) {
					t.Errorf("%T %+v is accepted, and all of its delays are 0", p, p)
				}
			case !errors.Is(err, transport.Invalid) || !namesAField(zero, err.Error()) || !strings.Contains(err.Error(), "; "):
				t.Errorf("%T %+v: %v: the error does not name a field and the fix", p, p, err)
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
