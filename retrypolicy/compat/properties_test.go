//go:build !tinygo

package compat_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

const longest = time.Duration(math.MaxInt64)

// policyRow is a policy and the bounds that hold for it in every case. To test a policy, add a row.
type policyRow struct {
	name   string
	policy retrypolicy.Policy
	// most is the longest delay.
	most time.Duration
	// noise is the allowed decrease of the measured mean, as a fraction, where the delay depends on
	// earlier draws; 1 where a few draws dominate the mean.
	noise float64
}

var policyRows = []policyRow{
	{name: "documented", policy: retrypolicy.ExponentialBackoffWithJitter{}, most: 10 * s},
	{name: "documented throttled", policy: throttled, most: time.Minute},
	{name: "NoRetry", policy: retrypolicy.NoRetry{}},
	{name: "Fixed", policy: retrypolicy.Fixed{Delay: s, Jitter: 0.25}, most: 1250 * time.Millisecond},
	{name: "Fixed longest", policy: retrypolicy.Fixed{Delay: longest, Jitter: 1}, most: longest},
	{name: "Incremental", policy: retrypolicy.Incremental{Step: s, Max: time.Minute, Jitter: 0.5}, most: 90 * s},
	{name: "Incremental no Max", policy: retrypolicy.Incremental{Step: s}, most: longest},
	{name: "Backoff none", policy: retrypolicy.Backoff{Base: s, Max: time.Minute}, most: time.Minute},
	{name: "Backoff no Max", policy: retrypolicy.Backoff{Base: 3}, most: longest},
	{name: "Backoff factor", policy: retrypolicy.Backoff{Base: s, Factor: 1.5, Max: time.Minute}, most: time.Minute},
	{name: "Backoff full", policy: retrypolicy.Backoff{Base: s, Max: time.Minute, Jitter: retrypolicy.JitterFull},
		most: time.Minute},
	{name: "Backoff equal", policy: retrypolicy.Backoff{Base: s, Max: time.Minute, Jitter: retrypolicy.JitterEqual},
		most: time.Minute},
	{name: "Backoff decorrelated", policy: retrypolicy.Backoff{Base: s, Max: time.Minute,
		Jitter: retrypolicy.JitterDecorrelated}, most: time.Minute, noise: 0.15},
	{name: "Backoff decorrelated smithy", policy: retrypolicy.Backoff{Base: s, Max: time.Minute,
		Jitter: retrypolicy.JitterDecorrelatedSmithy}, most: time.Minute, noise: 0.15},
	{name: "Backoff decorrelated no Max", policy: retrypolicy.Backoff{Base: s, Jitter: retrypolicy.JitterDecorrelated},
		most: longest, noise: 1},
	{name: "Backoff v2", policy: retrypolicy.Backoff{Base: s, Max: time.Minute, Jitter: retrypolicy.JitterDecorrelatedV2},
		most: time.Minute, noise: 0.15},
	{name: "Backoff v2 no Max", policy: retrypolicy.Backoff{Base: s, Jitter: retrypolicy.JitterDecorrelatedV2},
		most:  longest,
		noise: 0.15},
	{name: "Backoff proportional", policy: retrypolicy.Backoff{Base: s, Max: time.Minute,
		Jitter: retrypolicy.JitterProportional,
		Low:    0.8, High: 1.2}, most: 72 * s},

	{name: "AzureJava", policy: compat.AzureJava{}, most: 10 * s},
	{name: "AzureJava resend", policy: compat.AzureJava{Resend: true}, most: 10 * s},
	{name: "AzureJava longest", policy: compat.AzureJava{Count: math.MaxInt32, Max: math.MaxInt32 * time.Millisecond,
		Delta: math.MaxInt32 * time.Millisecond}, most: math.MaxInt32 * time.Millisecond},
	{name: "AzureCSharpV1", policy: compat.AzureCSharpV1(), most: 10 * s},
	{name: "CSharpExponential", policy: compat.AzureCSharp{}, most: 45360 * s},
	{name: "CSharpFixed", policy: compat.AzureCSharp{Curve: compat.AzureCSharpFixed, Delay: s},
		most: 1050 * time.Millisecond},
	{name: "CSharpIncremental", policy: compat.AzureCSharp{Curve: compat.AzureCSharpIncremental, Delay: s,
		Max: time.Hour}, most: 63 * time.Minute},
	{name: "CSharpIncremental no Max", policy: compat.AzureCSharp{Curve: compat.AzureCSharpIncremental, Delay: time.Hour},
		most: longest},
	{name: "AzureC", policy: compat.AzureC{}, most: 31 * s},
	{name: "AzureC exponential", policy: compat.AzureC{Curve: compat.AzureCExponential}, most: 30 * s},
	{name: "AzureC linear", policy: compat.AzureC{Curve: compat.AzureCLinear}, most: 30 * s},
	{name: "AzureC interval", policy: compat.AzureC{Curve: compat.AzureCInterval}, most: 5 * s},
	{name: "AzureC random", policy: compat.AzureC{Curve: compat.AzureCRandom}, most: 4 * s},
	{name: "AzureC immediate", policy: compat.AzureC{Curve: compat.AzureCImmediate}},
	{name: "AzureC none", policy: compat.AzureC{Curve: compat.AzureCNone}},
	{name: "AzureNode", policy: compat.AzureNode(), most: time.Minute},
	{name: "AzureNodeDocumented", policy: compat.AzureNodeDocumented(), most: time.Minute},

	{name: "TruncatedExponential", policy: compat.TruncatedExponential{}, most: 15 * s},
	{name: "Truncated", policy: compat.Truncated(), most: 15 * s},
	{name: "FetchRetry", policy: compat.FetchRetryDefaults(), most: s},
	{name: "Azcore", policy: compat.Azcore{MaxRetries: math.MaxInt32}, most: time.Minute},
	{name: "Azcore no Max", policy: compat.Azcore{MaxRetries: math.MaxInt32, Max: -1}, most: longest},
	{name: "IoTOperations", policy: compat.AzureIoTOperations(), most: 63 * s},
	{name: "RetryableHTTP", policy: compat.RetryableHTTP{Retries: math.MaxInt32}, most: 30 * s},
	{name: "RetryableHTTP linear", policy: compat.RetryableHTTP{Retries: math.MaxInt32, Linear: true}, most: longest},
	{name: "Cenkalti", policy: compat.Cenkalti(), most: 90*s + 1},
	{name: "CenkaltiV4", policy: compat.CenkaltiV4(), most: 90*s + 1},
	{name: "Failsafe", policy: compat.Failsafe{Retries: -1, Delay: s, Max: time.Minute, JitterFactor: 0.5},
		most: 90 * s},
	{name: "Failsafe jitter", policy: compat.Failsafe{Retries: -1, Delay: s, Max: longest, Jitter: longest},
		most: longest},
	{name: "Failsafe range", policy: compat.Failsafe{Retries: -1, Delay: s, RandomMax: longest}, most: longest},
	{name: "Polly", policy: compat.Polly{Retries: math.MaxInt32, Delay: s, Jitter: true}, most: 1250 * time.Millisecond},
	{name: "Polly linear", policy: compat.Polly{Retries: math.MaxInt32, Delay: s, Max: time.Hour,
		Curve: compat.PollyLinear, Jitter: true}, most: time.Hour},
	{name: "Polly exponential", policy: compat.Polly{Retries: math.MaxInt32, Delay: s, Max: time.Hour,
		Curve: compat.PollyExponential}, most: time.Hour},
	{name: "Polly exponential jitter", policy: compat.Polly{Retries: math.MaxInt32, Delay: s, Max: time.Hour,
		Curve: compat.PollyExponential, Jitter: true}, most: time.Hour, noise: 0.15},

	{name: "AWSGoBackoff", policy: compat.AWSGoBackoff{Max: 20 * s}, most: 20 * s},
	{name: "AWSGoBackoff longest", policy: compat.AWSGoBackoff{Max: longest}, most: longest},
	{name: "AWSKotlin", policy: endless(compat.AWSKotlin.Options()), most: 25 * s},
	{name: "AWSStandard", policy: endless(compat.AWSStandard.Options()), most: 25 * s},
	{name: "AWSDynamoDB", policy: endless(compat.AWSDynamoDB.Options()), most: 25 * s},
	{name: "AWSBotocore2025", policy: endless(compat.AWSBotocore2025.Options()), most: 20 * s},
	{name: "AWSBotocoreLegacy", policy: endless(compat.AWSLegacy.Options()), most: longest},
	{name: "AWSBotocoreLegacyDynamoDB", policy: endless(compat.AWSLegacyDynamoDB.Options()), most: longest},
	{name: "AWSPythonSimple", policy: endless(compat.AWSPythonSimple.Options()), most: 20 * s},
	{name: "AWSGo2025", policy: endless(compat.AWSGo2025.Options()), most: 20 * s},
	{name: "AWSJavaLegacy", policy: endless(compat.AWSJavaLegacy.Options()), most: 20 * s},
	{name: "AWSJS2025", policy: endless(compat.AWSJS2025.Options()), most: 25 * s},
	{name: "PerKey", policy: perKeyRow(), most: 20 * s},

	{name: "MaxAttempts", policy: retrypolicy.MaxAttempts{Total: math.MaxInt32, Policy: retrypolicy.Backoff{Base: s,
		Max: time.Minute}}, most: time.Minute},
	{name: "MaxElapsed", policy: retrypolicy.MaxElapsed{Limit: time.Hour, Shorten: true,
		Policy: retrypolicy.Backoff{Base: s}}, most: time.Hour},
	{name: "ByKind", policy: retrypolicy.ByKind{
		Rules: []retrypolicy.Rule{{Kinds: retrypolicy.Kinds(transport.Throttled), OwnCount: true,
			Policy: retrypolicy.Incremental{Step: s, Max: time.Hour}}},
		Default: retrypolicy.Backoff{Base: s, Max: time.Minute},
	}, most: time.Hour},
}

// ask is an attempt of a series with a failure of kind, without a service's delay.
func ask(n int, kind transport.Kind, draw uint64, elapsed time.Duration) retrypolicy.Attempt {
	return retrypolicy.Attempt{Retry: n, Kind: kind, Rand: draw, Elapsed: elapsed, Safe: retrypolicy.SafeYes,
		Err: policytest.Lost}
}

// check expects a decision within bounds.
func (r *policyRow) check(t *testing.T, a retrypolicy.Attempt, d retrypolicy.Decision) {
	t.Helper()
	if d.Delay < 0 || d.Delay > r.most {
		t.Fatalf("%s: %+v gives %+v, beyond 0 to %v", r.name, a, d, r.most)
	}
}

// TestPoliciesKeepTheirBounds checks whole series, and numbers of retries where 32 or 64 bits
// overflow, also in the series. Two series of equal attempts decide alike.
func TestPoliciesKeepTheirBounds(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	retries := 100
	if testkit.Long() {
		retries = 1200
	}
	for i := range policyRows {
		r := &policyRows[i]
		policytest.CheckInvalid(t, r.policy, "")
		for _, kind := range []transport.Kind{transport.Network, transport.Throttled, transport.Timeout,
			transport.Unavailable} {
			for _, fixed := range []int64{policytest.DrawZero, -1, 1 << 62, 0} { // the last: drawn anew each time
				series, same := policytest.Series(r.policy), policytest.Series(r.policy)
				var elapsed time.Duration
				for n := 1; n <= retries; n++ {
					draw := uint64(fixed)
					if fixed == 0 {
						draw = rng.Uint64()
					}
					a := ask(n, kind, draw, elapsed)
					d := series.Decide(a)
					r.check(t, a, d)
					if d2 := same.Decide(a); d2 != d {
						t.Fatalf("%s: %+v gives %+v, and %+v", r.name, a, d, d2)
					}
					if !d.Retry {
						break
					}
					elapsed += min(d.Delay, longest-elapsed)
				}
				for _, n := range append([]int{math.MinInt32, -1, 0}, policytest.Huge...) {
					for _, elapsed := range []time.Duration{math.MinInt64, -1, 0, elapsed, longest} {
						a := ask(n, kind, rng.Uint64(), elapsed)
						r.check(t, a, r.policy.Decide(a))
						r.check(t, a, series.Decide(a))
					}
				}
			}
		}
	}
}

// TestPoliciesBackOff compares the mean of many series, each with its own draws: it must not fall
// from one retry to the next.
func TestPoliciesBackOff(t *testing.T) {
	if !testkit.Long() {
		t.Skip("SKIPPED: 5 million decisions; HUBLINE_LONG=1 makes them")
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	const many = 1024
	for i := range policyRows {
		r := &policyRows[i]
		series := make([]retrypolicy.Series, many)
		for j := range series {
			series[j] = policytest.Series(r.policy)
		}
		before := 0.0
		for n := 1; n <= 70; n++ {
			sum, count := 0.0, 0
			for j, stratum := range rng.Perm(many) {
				// Stratified sampling: one draw from each of many equal parts, in random order, so the mean of
				// a single decision is nearly exact.
				d := series[j].Decide(ask(n, transport.Network, uint64(stratum)<<54|1<<53, 0))
				if d.Retry {
					sum += float64(d.Delay)
					count++
				}
			}
			if count < many {
				break // it stopped
			}
			mean := sum / many
			if mean < before*(1-r.noise-1e-12)-1000 {
				t.Errorf("%s, seed %d: the mean before retry %d is %v, and %v before the one before", r.name, seed, n,
					time.Duration(mean), time.Duration(before))
			}
			before = mean
		}
	}
}

func TestPoliciesAllocateNothing(t *testing.T) {
	for i := range policyRows {
		r := &policyRows[i]
		n := 0
		series := policytest.Series(r.policy)
		if allocs := testing.AllocsPerRun(100, func() {
			n++
			sink = series.Decide(ask(n, transport.Throttled, uint64(n)<<57, time.Duration(n)))
		}); allocs != 0 {
			t.Errorf("%s: %v allocations per decision", r.name, allocs)
		}
		if allocs := testing.AllocsPerRun(10,
			func() { sinkErr = retrypolicy.Validate(r.policy) }); allocs != 0 || sinkErr != nil {
			t.Errorf("%s: Validate: %v allocations, %v", r.name, allocs, sinkErr)
		}
	}
	refused := policytest.Status(503)
	if allocs := testing.AllocsPerRun(100,
		func() { sinkInfo = httpretry.Classify(refused) }); allocs != 0 || sinkInfo.Verdict != retrypolicy.VerdictAgain {
		t.Errorf("httpretry.Classify: %v allocations, %+v", allocs, sinkInfo)
	}
}

var sinkInfo retrypolicy.Info

// parameters are the fuzzer's values for a policy.
type parameters struct {
	d1, d2, d3 time.Duration
	n          int
	f1, f2, f3 float64
	choice     uint8
	flag       bool
}

// builders make a policy from parameters, and return the longest delay that it may have if Validate
// accepts it.
var builders = []func(p parameters) (retrypolicy.Policy, time.Duration){
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		e := retrypolicy.ExponentialBackoffWithJitter{C: p.d1, Cmin: p.d2, Cmax: p.d3, Jd: p.f1, Ju: p.f2}
		if e.Cmax == 0 {
			return e, 10 * s
		}
		return e, p.d3
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		b := retrypolicy.Backoff{Base: p.d1, Max: p.d2, Factor: p.f3, Jitter: retrypolicy.Jitter(p.choice % 8), Low: p.f1,
			High: p.f2}
		if p.d2 == 0 || b.Jitter == retrypolicy.JitterProportional {
			return b, longest
		}
		return b, p.d2
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		return retrypolicy.Fixed{Delay: p.d1, Jitter: p.f1}, twice(p.d1)
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		return retrypolicy.Incremental{Step: p.d1, Max: p.d2, Jitter: p.f1}, twice(p.d2)
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		return compat.AzureJava{Count: p.n, Min: p.d1, Max: p.d2, Delta: p.d3, NoFastRetry: p.flag,
			Resend: p.choice&1 != 0}, max(p.d2, 10*s)
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		return compat.AzureJava{Count: p.n, Min: p.d1, Max: p.d2, Delta: p.d3, NoFastRetry: true, Apart: s}, max(p.d2, 10*s)
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		c := compat.AzureCSharp{Curve: compat.AzureCSharpCurve(p.choice % 4), MaxRetries: p.n, Delay: p.d1, Max: p.d2,
			NoJitter: p.flag}
		if c.Curve == compat.AzureCSharpExponential {
			return c, twice(max(p.d2, 12*time.Hour))
		}
		return c, twice(p.d2)
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		c := compat.AzureC{Curve: compat.AzureCCurve(p.choice % 8), Initial: p.d1.Truncate(s), Max: p.d2.Truncate(s),
			Jitter: p.n, Limit: p.d3}
		return c, twice(max(c.Max, 30*s))
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		return compat.FetchRetry{Retries: p.n, Delay: p.d1, On: []int{503}}, p.d1
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		most := p.d2
		switch {
		case most == 0:
			most = time.Minute
		case most < 0:
			most = longest
		}
		return compat.Azcore{MaxRetries: p.n, Delay: p.d1, Max: p.d2}, most
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		most := max(p.d2, 30*s)
		if p.flag {
			most = longest
		}
		return compat.RetryableHTTP{Retries: p.n, Min: p.d1, Max: p.d2, Linear: p.flag}, most
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		f := compat.Failsafe{Retries: p.n, Delay: p.d1, Max: p.d2, Factor: p.f1, JitterFactor: p.f2}
		if p.flag {
			f = compat.Failsafe{Retries: p.n, Delay: p.d1, RandomMax: p.d2}
			return f, max(p.d1, p.d2)
		}
		return f, twice(max(p.d1, p.d2))
	},
	func(p parameters) (retrypolicy.Policy, time.Duration) {
		most := p.d2
		if most == 0 {
			most = longest
		}
		return compat.Polly{Retries: p.n, Delay: p.d1, Max: p.d2, Curve: compat.PollyCurve(p.choice % 4),
			Jitter: p.flag}, most
	},
}

// twice returns 2d plus a floating-point tolerance, where 0 means no limit.
func twice(d time.Duration) time.Duration {
	if d == 0 || d > longest/4 {
		return longest
	}
	return 2*d + d>>50 + 2
}

// FuzzPolicyParameters checks that no parameters make a policy panic, and that with those that
// Validate accepts the delays stay within bounds.
func FuzzPolicyParameters(f *testing.F) {
	for i := range builders {
		f.Add(uint8(i), int64(s), int64(time.Minute), int64(time.Hour), int32(5), 0.5, 0.25, 2.0, uint8(i), true, int32(3),
			uint64(policytest.DrawHalf), int64(0))
		f.Add(uint8(i), int64(math.MaxInt64), int64(math.MaxInt64), int64(math.MaxInt64), int32(math.MaxInt32), 1.0, 1.0, 1.5,
			uint8(3), false, int32(math.MaxInt32), uint64(policytest.DrawLast), int64(math.MaxInt64))
		f.Add(uint8(i), int64(math.MinInt64), int64(-1), int64(0), int32(-1), math.NaN(), math.Inf(1), -1.0, uint8(255),
			false, int32(math.MinInt32), uint64(1), int64(math.MinInt64))
		f.Add(uint8(i), int64(0), int64(0), int64(0), int32(0), 0.0, 0.0, 0.0, uint8(0), false, int32(1), uint64(0), int64(0))
	}
	f.Fuzz(func(t *testing.T, which uint8, d1, d2, d3 int64, n int32, f1, f2, f3 float64, choice uint8, flag bool,
		retry int32, draw uint64, elapsed int64) {
		build := builders[int(which)%len(builders)]
		p, most := build(parameters{time.Duration(d1), time.Duration(d2), time.Duration(d3), int(n), f1, f2, f3, choice,
			flag})
		valid := retrypolicy.Validate(p) == nil
		a := ask(int(retry), transport.Network, draw, time.Duration(elapsed))
		series := policytest.Series(p)
		for range 4 { // a few of the same series
			d := series.Decide(a)
			if valid && (d.Delay < 0 || d.Delay > most) {
				t.Fatalf("%+v, %+v: %v (%d ns), beyond 0 to %v", p, a, d, d.Delay, most)
			}
			if !d.Retry {
				break
			}
			a.Retry += min(1, math.MaxInt32-a.Retry)
			a.Elapsed += max(min(d.Delay, longest-max(a.Elapsed, 0)), 0)
		}
	})
}

// perKeyRow is a PerKey for the table of policies.
func perKeyRow() retrypolicy.Policy {
	p, err := budget.NewPerKey(3, func(string) retrypolicy.Policy { return endless(compat.AWSGo2025.Options()) })
	if err != nil {
		panic(err)
	}
	return p
}

var (
	sink    retrypolicy.Decision
	sinkErr error
)
