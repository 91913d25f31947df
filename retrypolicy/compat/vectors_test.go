//go:build !tinygo

package compat_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// vector is one entry of testdata/vectors.json; testdata/README.md describes the form.
type vector struct {
	Name, Policy string
	Set          map[string]json.RawMessage
	Tokens       *int
	Throttle     []float64
	Within       millis
	Invalid      *string
	vectorStep
	Retry  *int
	Delays []millis
	Steps  []vectorStep
	// Of a run:
	Answers []vectorAnswer
	Calls   int
	Took    millis
}

// vectorStep is an outcome and the decision about it.
type vectorStep struct {
	New, OK bool
	U       *float64
	Kind    string
	Safe    string
	After   millis
	Elapsed millis
	Delay   millis
	Stop    string
	Tokens  *float64
}

// millis is a duration in milliseconds.
type millis time.Duration

func (m *millis) UnmarshalJSON(text []byte) error {
	n, ok := new(big.Rat).SetString(string(text))
	if !ok {
		return fmt.Errorf("%s is not a number of milliseconds", text)
	}
	n.Mul(n, big.NewRat(1e6, 1))
	if !n.IsInt() || !n.Num().IsInt64() {
		return fmt.Errorf("%s ms are not whole nanoseconds, or too many", text)
	}
	*m = millis(n.Num().Int64())
	return nil
}

// vectorAnswer is an HTTP status, or an object with the service's wait.
type vectorAnswer struct {
	Status int
	After  millis
}

func (a *vectorAnswer) UnmarshalJSON(text []byte) error {
	type object vectorAnswer
	if text[0] == '{' {
		return json.Unmarshal(text, (*object)(a))
	}
	return json.Unmarshal(text, &a.Status)
}

func (a vectorAnswer) err() error {
	switch a.Status {
	case 0:
		return policytest.Lost
	case 200:
		return nil
	}
	return &policytest.StatusError{Status: a.Status, After: time.Duration(a.After)}
}

// vectorPolicies are the policies of the vectors, besides the presets of AWS.
var vectorPolicies = map[string]retrypolicy.Policy{
	"ExponentialBackoffWithJitter": retrypolicy.ExponentialBackoffWithJitter{},
	"Backoff":                      retrypolicy.Backoff{},
	"Fixed":                        retrypolicy.Fixed{},
	"Incremental":                  retrypolicy.Incremental{},
	"AWSGoBackoff":                 compat.AWSGoBackoff{},
	"Azcore":                       compat.Azcore{},
	"AzureC":                       compat.AzureC{},
	"AzureCSharp":                  compat.AzureCSharp{},
	"AzureCSharpV1":                compat.AzureCSharpV1(),
	"AzureJava":                    compat.AzureJava{},
	"AzureNode":                    compat.AzureNode(),
	"AzureNodeDocumented":          compat.AzureNodeDocumented(),
	"CenkaltiV4":                   compat.CenkaltiV4(),
	"Failsafe":                     compat.Failsafe{},
	"GRPC":                         compat.GRPC{},
	"Polly":                        compat.Polly{},
	"RetryableHTTP":                compat.RetryableHTTP{},
	"Truncated":                    compat.Truncated(),
	"TruncatedExponential":         compat.TruncatedExponential{},
}

// vectorNames are the constants that parameters have.
var vectorNames = map[string]uint64{
	"AzureCExponentialJitter": uint64(compat.AzureCExponentialJitter), "AzureCNone": uint64(compat.AzureCNone),
	"AzureCExponential": uint64(compat.AzureCExponential), "AzureCLinear": uint64(compat.AzureCLinear),
	"AzureCInterval": uint64(compat.AzureCInterval), "AzureCRandom": uint64(compat.AzureCRandom),
	"AzureCImmediate": uint64(compat.AzureCImmediate), "AzureCSharpFixed": uint64(compat.AzureCSharpFixed),
	"AzureCSharpIncremental": uint64(compat.AzureCSharpIncremental), "PollyLinear": uint64(compat.PollyLinear),
	"PollyExponential": uint64(compat.PollyExponential), "JitterFull": uint64(retrypolicy.JitterFull),
	"JitterEqual": uint64(retrypolicy.JitterEqual), "JitterDecorrelated": uint64(retrypolicy.JitterDecorrelated),
	"JitterDecorrelatedSmithy": uint64(retrypolicy.JitterDecorrelatedSmithy),
	"JitterDecorrelatedV2":     uint64(retrypolicy.JitterDecorrelatedV2),
	"JitterProportional":       uint64(retrypolicy.JitterProportional),
}

var vectorKinds = map[string]transport.Kind{"": transport.Network, "Network": transport.Network,
	"Timeout": transport.Timeout, "Unavailable": transport.Unavailable, "Throttled": transport.Throttled,
	"Conflict": transport.Conflict}

// set sets a field of a policy.
func (v *vector) set(t *testing.T, field reflect.Value, text json.RawMessage) {
	t.Helper()
	var err error
	switch to := field.Addr().Interface().(type) {
	case *time.Duration:
		err = json.Unmarshal(text, (*millis)(to))
	case *int, *bool:
		err = json.Unmarshal(text, to)
	case *float64: // also "NaN" and "+Inf"
		*to, err = strconv.ParseFloat(strings.Trim(string(text), `"`), 64)
	default:
		var name string
		if json.Unmarshal(text, &name) == nil {
			field.SetUint(vectorNames[name])
			return
		}
		var number uint64 // of no constant
		err = json.Unmarshal(text, &number)
		field.SetUint(number)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// build returns the policy of a vector, and what counts its tokens.
func (v *vector) build(t *testing.T) (p retrypolicy.Policy, tokens func() float64) {
	t.Helper()
	for _, preset := range compat.AWSPresets() {
		if v.Policy != string(preset) {
			continue
		}
		o := preset.Options()
		for name, text := range v.Set {
			v.set(t, reflect.ValueOf(o).Elem().FieldByName(name), text)
		}
		if v.Tokens == nil {
			return policytest.Must(compat.NewAWS(o)), nil
		}
		b := policytest.Bucketed(o, 500, *v.Tokens)
		return policytest.Must(compat.NewAWS(o)), func() float64 { return float64(b.Tokens(policytest.Epoch)) }
	}
	zero, ok := vectorPolicies[v.Policy]
	if !ok {
		t.Fatalf("there is no policy %q", v.Policy)
	}
	set := reflect.New(reflect.TypeOf(zero)).Elem()
	set.Set(reflect.ValueOf(zero))
	for name, text := range v.Set {
		v.set(t, set.FieldByName(name), text)
	}
	p = set.Interface().(retrypolicy.Policy)
	if v.Throttle != nil {
		th := policytest.Must(budget.NewRetryThrottle(int(v.Throttle[0]), v.Throttle[1]))
		return th.Wrap(p), th.Tokens
	}
	return p, nil
}

// steps returns the steps of the short form too.
func (v *vector) steps() (first int, all []vectorStep) {
	first = 1
	if v.Retry != nil {
		first = *v.Retry
	}
	if v.Steps != nil {
		return first, v.Steps
	}
	for _, d := range v.Delays {
		all = append(all, vectorStep{Delay: d})
	}
	if v.Stop != "" {
		all = append(all, vectorStep{Stop: v.Stop})
	}
	return first, all
}

func TestPublishedVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, v := range all {
		seen[v.Policy] = true
		t.Run(fmt.Sprintf("%s, entry %d %s", v.Policy, i+1, v.Name), func(t *testing.T) {
			switch {
			case v.Invalid != nil:
				p, _ := v.build(t)
				policytest.CheckInvalid(t, p, *v.Invalid)
			case v.Answers != nil:
				v.run(t)
			default:
				v.decide(t)
			}
		})
	}
	for name := range vectorPolicies {
		if !seen[name] {
			t.Errorf("%s has no vector", name)
		}
	}
	for _, preset := range compat.AWSPresets() {
		if !seen[string(preset)] {
			t.Errorf("%v has no vector", preset)
		}
	}
}

// decide compares the decisions of a policy about a series of failures.
func (v *vector) decide(t *testing.T) {
	p, tokens := v.build(t)
	series := policytest.Series(p)
	number, steps := v.steps()
	elapsed := time.Duration(v.Elapsed)
	for i, step := range steps {
		if step.New {
			series, number = policytest.Series(p), 1
		}
		a := v.attempt(step)
		a.Retry, a.Elapsed = number-1, elapsed
		if d := series.Admit(a); !d.Retry || d.Delay != 0 {
			t.Fatalf("step %d: Admit: %v", i+1, d)
		}
		if step.OK {
			series.Report(retrypolicy.VerdictSucceed, a)
		} else {
			series.Report(retrypolicy.VerdictAgain, a)
			a.Retry = number
			d := series.Decide(a)
			off := d.Delay - time.Duration(step.Delay)
			if d.Retry != (step.Stop == "") || !d.Retry && d.Reason.String() != step.Stop ||
				max(off, -off) > time.Duration(v.Within) {
				t.Errorf("step %d: %v (delay %v), want %+v", i+1, d, d.Delay, step)
			}
			elapsed += max(min(d.Delay, math.MaxInt64-elapsed), 0)
			number++
		}
		if step.Tokens != nil && tokens() != *step.Tokens {
			t.Errorf("step %d: %v tokens, want %v", i+1, tokens(), *step.Tokens)
		}
	}
}

// attempt returns the failure of a step, with what all steps of the vector have in common.
func (v *vector) attempt(step vectorStep) retrypolicy.Attempt {
	safe := map[string]retrypolicy.Safe{"yes": retrypolicy.SafeYes, "no": retrypolicy.SafeNo}
	a := retrypolicy.Attempt{Now: policytest.Epoch, Rand: drawOf(*v.U), After: time.Duration(v.After),
		Kind: vectorKinds[v.Kind], Safe: safe[v.Safe]}
	if step.Kind != "" {
		a.Kind = vectorKinds[step.Kind]
	}
	if step.After != 0 {
		a.After = time.Duration(step.After)
	}
	if step.Safe != "" {
		a.Safe = safe[step.Safe]
	}
	if !step.OK {
		a.Err = a.Kind
	}
	return a
}

// run compares the outcome of an operation whose attempts have the given answers.
func (v *vector) run(t *testing.T) {
	p, _ := v.build(t)
	judges := map[string]retrypolicy.Classifier{"Truncated": compat.ClassifyTruncated,
		"Azcore": httpretry.ClassifyStatuses(compat.AzcoreStatuses()...)}
	var list []error
	for _, a := range v.Answers {
		list = append(list, a.err())
	}
	draw := func() uint64 { return drawOf(*v.U) }
	calls, took, err := policytest.Retries(t, retrypolicy.Retrier{Policy: p, Classify: judges[v.Policy], Rand: draw},
		list...)
	off := took - time.Duration(v.Took)
	if calls != v.Calls || max(off, -off) > time.Duration(v.Within) {
		t.Errorf("%d calls in %v, want %d in %v", calls, took, v.Calls, time.Duration(v.Took))
	}
	if v.Stop == "" {
		if err != nil {
			t.Errorf("%v, want a success", err)
		}
		return
	}
	last := list[min(calls, len(list))-1]
	if e, ok := err.(*retrypolicy.Error); !ok || e.Reason.String() != v.Stop || !errors.Is(e.Err, last) {
		t.Errorf("%v, want %s with the last answer", err, v.Stop)
	}
}

// drawOf returns the smallest draw whose fraction is u or more, for u from 0 to 1. It takes u as
// its shortest decimal form.
func drawOf(u float64) uint64 {
	if u >= 1 {
		return policytest.DrawLast
	}
	const digits = 1_000_000_000
	n := big.NewInt(int64(math.Round(u * digits)))
	n.Lsh(n, 64).Add(n, big.NewInt(digits-1)).Div(n, big.NewInt(digits))
	return n.Uint64()
}
