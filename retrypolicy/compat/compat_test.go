package compat_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/httpretry"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

func zeroDraws() uint64 { return policytest.DrawZero }

func TestTruncatedDelays(t *testing.T) {
	var p compat.TruncatedExponential
	policytest.WantDelays(t, p, retrypolicy.Attempt{Rand: policytest.DrawZero}, 0, 1001*time.Millisecond,
		2001*time.Millisecond, 4001*time.Millisecond, 8001*time.Millisecond, 15*s, 15*s)
	policytest.WantDelays(t, p, retrypolicy.Attempt{Rand: policytest.DrawLast}, 0, 2000*time.Millisecond,
		3000*time.Millisecond, 5000*time.Millisecond, 9000*time.Millisecond, 15*s, 15*s)
	for _, n := range policytest.Huge {
		policytest.CheckDelay(t, p, n, policytest.DrawLast, 15*s)
	}
	longest := compat.TruncatedExponential{Base: s, Random: math.MaxInt64, Max: math.MaxInt64}
	policytest.CheckDelay(t, longest, 99, policytest.DrawLast, math.MaxInt64)
}

// The note has a row per status, each with its own delay and number of retries.
func TestTruncatedRows(t *testing.T) {
	ok := error(nil)
	for _, c := range []struct {
		name  string
		list  []error
		calls int
		took  time.Duration
		ends  retrypolicy.Reason
		works bool
	}{
		{"503 for ever", []error{policytest.Status(503)}, 4, 7003 * time.Millisecond, retrypolicy.ReasonOutOfAttempts, false},
		{"429 for ever", []error{policytest.Status(429)}, 4, 7003 * time.Millisecond, retrypolicy.ReasonOutOfAttempts, false},
		{"504 is one of 5xx, not a time-out", []error{policytest.Status(504)}, 4, 7003 * time.Millisecond,
			retrypolicy.ReasonOutOfAttempts, false},
		{"501 and 505 too", []error{policytest.Status(501), policytest.Status(505), ok}, 3, 3002 * time.Millisecond, 0, true},
		{"5xx and 429 share a row", []error{policytest.Status(500), policytest.Status(429), policytest.Status(502),
			policytest.Status(429)}, 4, 7003 * time.Millisecond,
			retrypolicy.ReasonOutOfAttempts, false},
		{"no connection counts as 5xx", []error{policytest.Lost}, 4, 7003 * time.Millisecond, retrypolicy.ReasonOutOfAttempts,
			false},
		{"408 for ever", []error{policytest.Status(408)}, 2, s, retrypolicy.ReasonOutOfAttempts, false},
		{"408 leaves three retries for 503", []error{policytest.Status(408), policytest.Status(503)}, 5,
			8003 * time.Millisecond, retrypolicy.ReasonOutOfAttempts,
			false},
		{"503 leaves one retry for 408", []error{policytest.Status(503), policytest.Status(503), policytest.Status(503),
			policytest.Status(408)}, 5, 8003 * time.Millisecond,
			retrypolicy.ReasonOutOfAttempts, false},
		{"404", []error{policytest.Status(404)}, 1, 0, retrypolicy.ReasonNotRetryable, false},
		{"425, which others retry", []error{policytest.Status(425)}, 1, 0, retrypolicy.ReasonNotRetryable, false},
		{"503, then 400", []error{policytest.Status(503), policytest.Status(400)}, 2, 1001 * time.Millisecond,
			retrypolicy.ReasonNotRetryable, false},
		{"503, then good", []error{policytest.Status(503), ok}, 2, 1001 * time.Millisecond, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := retrypolicy.Retrier{Policy: compat.Truncated(), Classify: compat.ClassifyTruncated, Rand: zeroDraws}
			calls, took, err := policytest.Retries(t, r, c.list...)
			if calls != c.calls || took != c.took || (err == nil) != c.works || err != nil && !errors.Is(err, c.ends) {
				t.Errorf("%d calls in %v, %v; want %d in %v, %v", calls, took, err, c.calls, c.took, c.ends)
			}
		})
	}
}

func TestFetchRetryDefaults(t *testing.T) {
	f := compat.FetchRetryDefaults()
	one := f
	one.Retries = 1
	none := f
	none.Retries = 0
	listed := f
	listed.On = []int{202, 503}
	for _, c := range []struct {
		name   string
		policy compat.FetchRetry
		list   []error
		calls  int
		took   time.Duration
		want   error // found in the result
	}{
		{"network error for ever", f, []error{policytest.Lost}, 4, 3 * s, policytest.Lost},
		{"one retry", one, []error{policytest.Lost}, 2, s, policytest.Lost},
		{"no retry", none, []error{policytest.Lost}, 1, 0, policytest.Lost},
		{"an error that others think final", f, []error{context.DeadlineExceeded, transport.Unauthorized, transport.Invalid},
			4, 3 * s, transport.Invalid},
		{"without a list every answer is final", f, []error{policytest.Status(503)}, 1, 0, retrypolicy.ReasonNotRetryable},
		{"network error, then an answer", f, []error{policytest.Lost, policytest.Status(500)}, 2, s,
			retrypolicy.ReasonNotRetryable},
		{"listed", listed, []error{policytest.Status(503)}, 4, 3 * s, retrypolicy.ReasonOutOfAttempts},
		{"not listed", listed, []error{policytest.Status(500)}, 1, 0, retrypolicy.ReasonNotRetryable},
		{"a success that is listed", listed, []error{policytest.Status(202), policytest.Status(202), nil}, 3, 2 * s, nil},
		{"a success that is not", listed, []error{policytest.Status(503), policytest.Status(201)}, 2, s, nil},
		{"permanent", listed, []error{retrypolicy.Permanent(policytest.Status(503))}, 1, 0, retrypolicy.ReasonNotRetryable},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls, took, err := policytest.Retries(t, retrypolicy.Retrier{Policy: c.policy, Classify: c.policy.Classify},
				c.list...)
			if calls != c.calls || took != c.took || !errors.Is(err, c.want) {
				t.Errorf("%d calls in %v, %v; want %d in %v, %v", calls, took, err, c.calls, c.took, c.want)
			}
		})
	}
}

// OnFunc decides alone: Retries is ignored.
func TestFetchRetryFunctions(t *testing.T) {
	var told, delayed []int
	f := compat.FetchRetry{
		Retries: 2,
		OnFunc:  func(attempt int, err error) bool { told = append(told, attempt); return attempt < 5 },
		DelayFunc: func(attempt int, err error) time.Duration {
			delayed = append(delayed, attempt)
			return s << attempt
		},
	}
	calls, took, err := policytest.Retries(t, retrypolicy.Retrier{Policy: f, Classify: f.Classify}, policytest.Status(404),
		policytest.Lost, policytest.Status(200))
	if calls != 6 || took != 31*s || !errors.Is(err, retrypolicy.ReasonPolicy) {
		t.Errorf("%d calls in %v, %v; want 6 in 31s, stopped by the policy", calls, took, err)
	}
	if want := []int{0, 1, 2, 3, 4, 5}; !reflect.DeepEqual(told, want) || !reflect.DeepEqual(delayed, want[:5]) {
		t.Errorf("OnFunc was told %v, DelayFunc %v", told, delayed)
	}
	policytest.CheckDelay(t, compat.FetchRetry{Retries: 1,
		DelayFunc: func(int, error) time.Duration { return -1 }}, 1, policytest.DrawZero, 0)
}

func TestAzcoreDelays(t *testing.T) {
	var p compat.Azcore
	at := func(n int, factor float64) time.Duration {
		return time.Duration(float64(int64(1)<<n-1) * 800 * factor * float64(time.Millisecond))
	}
	policytest.WantDelays(t, p, retrypolicy.Attempt{Rand: policytest.DrawZero}, 1, at(1, 0.8), at(2, 0.8), at(3, 0.8))
	policytest.WantDelays(t, p, retrypolicy.Attempt{Rand: policytest.Draw(0.4)}, 1, 800*time.Millisecond,
		2400*time.Millisecond, 5600*time.Millisecond)
	policytest.WantDelays(t, p, retrypolicy.Attempt{Rand: policytest.DrawLast}, 1, at(1, 1.3), at(2, 1.3), at(3, 1.3))
	policytest.WantStop(t, p, retrypolicy.Attempt{Retry: 4}, retrypolicy.ReasonOutOfAttempts)
	p.MaxRetries = math.MaxInt32
	for _, n := range policytest.Huge {
		policytest.CheckDelay(t, p, n, policytest.DrawZero, time.Minute)
		// Two cases of the SDK's test for overflow.
		policytest.CheckDelay(t, compat.Azcore{MaxRetries: math.MaxInt32, Delay: -1}, n, policytest.DrawLast, 0)
		policytest.CheckDelay(t, compat.Azcore{MaxRetries: math.MaxInt32, Delay: 3 * time.Hour, Max: -1}, max(n, 62),
			policytest.DrawLast,
			math.MaxInt64)
	}
	policytest.WantStop(t, compat.Azcore{MaxRetries: -1}, retrypolicy.Attempt{Retry: 1}, retrypolicy.ReasonOutOfAttempts)
}

func TestAzcoreEngine(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy compat.Azcore
		list   []error
		calls  int
		took   time.Duration
		want   error
	}{
		{"408, 500, 200", compat.Azcore{}, []error{policytest.Status(408), policytest.Status(500), nil}, 3,
			2560 * time.Millisecond, nil},
		{"always 500", compat.Azcore{}, []error{policytest.Status(500)}, 4, 7040 * time.Millisecond,
			retrypolicy.ReasonOutOfAttempts},
		{"no retries; 408", compat.Azcore{MaxRetries: -1}, []error{policytest.Status(408)}, 1, 0,
			retrypolicy.ReasonOutOfAttempts},
		{"408, then an error marked as final", compat.Azcore{}, []error{policytest.Status(408),
			retrypolicy.Permanent(policytest.Lost)}, 2,
			640 * time.Millisecond, retrypolicy.ReasonNotRetryable},
		{"429, ask again in 300 s", compat.Azcore{}, []error{&policytest.StatusError{Status: 429, After: 300 * s}}, 1, 0,
			retrypolicy.ReasonPushback},
		{"429, ask again in a minute", compat.Azcore{}, []error{&policytest.StatusError{Status: 429, After: 60 * s}, nil}, 2,
			60 * s, nil},
		{"503, ask again in 1 ms", compat.Azcore{}, []error{&policytest.StatusError{Status: 503, After: time.Millisecond},
			nil}, 2, time.Millisecond, nil},
		{"501 is not on the list", compat.Azcore{}, []error{policytest.Status(501)}, 1, 0, retrypolicy.ReasonNotRetryable},
		{"nor is 520", compat.Azcore{}, []error{policytest.Status(520)}, 1, 0, retrypolicy.ReasonNotRetryable},
		{"no connection", compat.Azcore{}, []error{policytest.Lost, nil}, 2, 640 * time.Millisecond, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := retrypolicy.Retrier{Policy: c.policy, Classify: httpretry.ClassifyStatuses(compat.AzcoreStatuses()...),
				Rand: zeroDraws}
			calls, took, err := policytest.Retries(t, r, c.list...)
			if calls != c.calls || took < c.took-3 || took > c.took+3 || !errors.Is(err, c.want) {
				t.Errorf("%d calls in %v, %v; want %d in %v, %v", calls, took, err, c.calls, c.took, c.want)
			}
			if last := c.list[min(calls, len(c.list))-1]; !errors.Is(err, last) {
				t.Errorf("%v does not hold the last answer", err)
			}
		})
	}
}

func TestIoTOperations(t *testing.T) {
	plain := compat.AzureIoTOperations()
	plain.Jitter, plain.Low, plain.High = retrypolicy.JitterNone, 0, 0
	policytest.CheckInvalid(t, plain, "")
	policytest.WantDelays(t, plain, retrypolicy.Attempt{}, 0, 125*time.Millisecond, 250*time.Millisecond,
		500*time.Millisecond, s, 2*s, 4*s, 8*s, 16*s, 32*s, 60*s, 60*s)
	p := compat.AzureIoTOperations()
	policytest.WantDelays(t, p, retrypolicy.Attempt{Rand: policytest.DrawZero}, 1, 118750*time.Microsecond,
		237500*time.Microsecond)
	policytest.WantDelays(t, p, retrypolicy.Attempt{Rand: policytest.DrawHalf}, 1, 125*time.Millisecond,
		250*time.Millisecond, 500*time.Millisecond, s, 2*s, 4*s, 8*s, 16*s, 32*s,
		60*s, 60*s)
	policytest.CheckDelay(t, p, math.MaxInt32, policytest.DrawLast, 63*s)
	last := &transport.Error{Kind: transport.Timeout}
	calls, _, err := policytest.Retries(t, retrypolicy.Retrier{Policy: retrypolicy.MaxAttempts{Total: 3, Policy: p}},
		policytest.Lost, policytest.Lost,
		last)
	if calls != 3 || !errors.Is(err, last) || !errors.Is(err, retrypolicy.ReasonOutOfAttempts) {
		t.Errorf("%d runs, %v; want 3 and the last error", calls, err)
	}
}

func TestRetryableHTTP(t *testing.T) {
	type p = compat.RetryableHTTP
	most := p{Retries: math.MaxInt32, Max: 5 * time.Minute}
	for _, c := range []struct {
		i    int
		want time.Duration
	}{{0, 1 * s}, {1, 2 * s}, {3, 8 * s}, {128, 300 * s}, {math.MaxInt32 - 1, 300 * s}} {
		policytest.CheckDelay(t, most, c.i+1, policytest.DrawLast, c.want)
	}
	policytest.WantDelays(t, p{}, retrypolicy.Attempt{}, 0, 1*s, 2*s, 4*s, 8*s)
	policytest.WantStop(t, p{}, retrypolicy.Attempt{Retry: 5}, retrypolicy.ReasonOutOfAttempts)
	policytest.WantStop(t, p{Retries: -1}, retrypolicy.Attempt{Retry: 1}, retrypolicy.ReasonOutOfAttempts)

	linear := p{Linear: true, Max: s}
	for _, c := range []struct {
		name   string
		policy p
		err    error
		kind   transport.Kind
		after  time.Duration
		want   time.Duration
	}{
		{"429 without a header", linear, policytest.Status(429), transport.Throttled, 0, s},
		{"503 without a header", linear, policytest.Status(503), transport.Unavailable, 0, s},
		{"502 with 2", linear, policytest.Status(502), transport.Unavailable, 2 * s, s},
		{"429 with 2", linear, policytest.Status(429), transport.Throttled, 2 * s, 2 * s},
		{"503 with an hour, verbatim", p{}, policytest.Status(503), transport.Unavailable, time.Hour, time.Hour},
		{"500 with an hour", p{}, policytest.Status(500), transport.Unavailable, time.Hour, s},
		{"no status, throttled", p{}, policytest.Lost, transport.Throttled, time.Hour, time.Hour},
		{"no status, lost", p{}, policytest.Lost, transport.Network, time.Hour, s},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.policy.Decide(retrypolicy.Attempt{Retry: 1, Err: c.err, Kind: c.kind, After: c.after,
				Rand: policytest.DrawHalf})
			if !d.Retry || d.Delay != c.want {
				t.Errorf("%v, want after %v", d, c.want)
			}
		})
	}
	spread := p{Retries: 9, Linear: true, Min: s, Max: 3 * s}
	policytest.WantDelays(t, spread, retrypolicy.Attempt{Rand: policytest.DrawZero}, 0, 1*s, 2*s, 3*s)
	policytest.WantDelays(t, spread, retrypolicy.Attempt{Rand: policytest.DrawHalf}, 0, 2*s, 4*s, 6*s)
	policytest.CheckDelay(t, p{Retries: math.MaxInt32, Linear: true, Min: 1 << 40, Max: 1 << 40}, math.MaxInt32,
		policytest.DrawZero,
		math.MaxInt64)
}

func TestCenkalti(t *testing.T) {
	// The library's names: InitialInterval, Multiplier, RandomizationFactor, MaxInterval.
	cenkalti := func(initial time.Duration, multiplier, factor float64, most time.Duration) retrypolicy.Policy {
		b := retrypolicy.Backoff{Base: initial, Factor: multiplier, Max: most}
		if factor > 0 {
			b.Jitter, b.Low, b.High = retrypolicy.JitterProportional, 1-factor, 1+factor
		}
		return b
	}
	policytest.WantDelays(t, cenkalti(500*time.Millisecond, 2, 0, 5*s), retrypolicy.Attempt{}, 0,
		500*time.Millisecond, s, 2*s, 4*s, 5*s, 5*s)
	for _, c := range []struct {
		u    float64
		want time.Duration
	}{{0, 1}, {0.34, 2}, {0.67, 3}, {0.999, 3}} {
		policytest.CheckDelay(t, cenkalti(2, 2, 0.5, 9), 1, policytest.Draw(c.u), c.want)
	}
	policytest.WantDelays(t, cenkalti(math.MaxInt64/2, 2.1, 0, math.MaxInt64), retrypolicy.Attempt{}, 0,
		math.MaxInt64/2, math.MaxInt64, math.MaxInt64)
	policytest.WantDelays(t, compat.Cenkalti(), retrypolicy.Attempt{Rand: policytest.DrawZero}, 0, 250*time.Millisecond,
		375*time.Millisecond, 562500*time.Microsecond)
	policytest.WantDelays(t, compat.Cenkalti(), retrypolicy.Attempt{Rand: policytest.DrawLast}, 1,
		750*time.Millisecond, 1125*time.Millisecond, 1687500*time.Microsecond)

	// LookAhead makes no retry whose delay would end after 15 minutes.
	v4 := compat.CenkaltiV4()
	policytest.CheckInvalid(t, v4, "")
	if d := v4.Decide(retrypolicy.Attempt{Retry: 1, Rand: policytest.DrawZero,
		Elapsed: 15*time.Minute - 250*time.Millisecond}); !d.Retry {
		t.Errorf("a delay that ends at the limit: %v", d)
	}
	policytest.WantStop(t, v4, retrypolicy.Attempt{Retry: 1, Rand: policytest.DrawZero,
		Elapsed: 15*time.Minute - 249*time.Millisecond},
		retrypolicy.ReasonOutOfTime)
	calls, took, err := policytest.Retries(t, retrypolicy.Retrier{Policy: retrypolicy.MaxElapsed{Limit: 5 * s,
		LookAhead: true, Policy: cenkalti(s, 1, 0, s)}}, policytest.Lost)
	if calls != 6 || took != 5*s || !errors.Is(err, retrypolicy.ReasonOutOfTime) {
		t.Errorf("%d calls in %v, %v; want 6 in 5s", calls, took, err)
	}
}

func TestFailsafe(t *testing.T) {
	type p = compat.Failsafe
	policytest.WantDelays(t, p{Retries: -1, Delay: 2 * s, Max: 30 * s}, retrypolicy.Attempt{Rand: policytest.DrawHalf}, 0,
		2*s, 4*s, 8*s, 16*s,
		30*s, 30*s)
	policytest.WantDelays(t, p{Retries: -1, Delay: 2 * s, Max: 30 * s, Factor: 3}, retrypolicy.Attempt{}, 0, 2*s, 6*s,
		18*s, 30*s)
	policytest.WantDelays(t, p{}, retrypolicy.Attempt{}, 0, 0, 0)
	policytest.WantStop(t, p{}, retrypolicy.Attempt{Retry: 3}, retrypolicy.ReasonOutOfAttempts)
	for _, c := range []struct {
		name   string
		policy p
		u      float64
		want   time.Duration
	}{
		{"range", p{Delay: 10, RandomMax: 100}, 0, 10},
		{"range", p{Delay: 10, RandomMax: 100}, 0.5, 55},
		{"range", p{Delay: 10, RandomMax: 100}, 1, 100},
		{"factor", p{Delay: 100, JitterFactor: 0.5}, 0, 150},
		{"factor", p{Delay: 100, JitterFactor: 0.5}, 0.25, 125},
		{"factor", p{Delay: 100, JitterFactor: 0.5}, 0.5, 100},
		{"factor", p{Delay: 100, JitterFactor: 0.5}, 0.75, 75},
		{"factor", p{Delay: 500, JitterFactor: 0.5}, 0.25, 625},
		{"jitter", p{Delay: 100, Jitter: 50}, 0, 150},
		{"jitter", p{Delay: 100, Jitter: 50}, 0.25, 125},
		{"jitter", p{Delay: 100, Jitter: 50}, 0.75, 75},
		{"jitter", p{Delay: 100, Jitter: 50}, 1, 50},
		{"jitter wider than the delay", p{Delay: 10, Jitter: 50}, 1, 0},
		{"random and jitter: both draws least", p{Delay: 10, RandomMax: 100, Jitter: 0}, 0, 10},
		{"jitter without delay", p{}, 0, 0},
	} {
		policytest.CheckInvalid(t, c.policy, "")
		policytest.CheckDelay(t, c.policy, 1, policytest.Draw(c.u), c.want)
	}
	asked := retrypolicy.Attempt{Retry: 1, Err: policytest.Status(503), After: 100}
	if d := (p{Delay: 7, Max: 8, Jitter: 50}).Decide(asked); d.Delay != 150 {
		t.Errorf("a wait that the service asked for gets the jitter: %v", d)
	}
	if d := (p{Delay: 100, Max: 100, Jitter: 50}).Decide(retrypolicy.Attempt{Retry: 1}); d.Delay != 150 {
		t.Errorf("jitter goes past Max: %v", d)
	}
	asked.Err = policytest.Status(500)
	if d := (p{Delay: 7}).Decide(asked); d.Delay != 7 {
		t.Errorf("a wait after 500 does not count: %v", d)
	}
	// The time limit shortens the last delay and allows one more attempt at its end.
	r := retrypolicy.Retrier{Policy: retrypolicy.MaxElapsed{Limit: 5 * s, Shorten: true,
		Policy: p{Retries: 4, Delay: 2 * s}}}
	calls, took, err := policytest.Retries(t, r, policytest.Lost)
	if calls != 5 || took != 5*s || err == nil {
		t.Errorf("%d calls in %v, %v; want 5 in 5s (0, 2, 4, 5, 5)", calls, took, err)
	}
}

func TestPolly(t *testing.T) {
	type p = compat.Polly
	one := func(c compat.PollyCurve, jitter bool) p {
		return p{Retries: math.MaxInt32, Delay: s, Curve: c, Jitter: jitter}
	}
	for _, c := range []struct {
		policy p
		a      int
		u      float64
		want   time.Duration
	}{
		{one(compat.PollyConstant, true), 0, 0, 750 * time.Millisecond},
		{one(compat.PollyConstant, true), 0, 0.4, 950 * time.Millisecond},
		{one(compat.PollyConstant, false), 7, 0.4, s},
		{one(compat.PollyLinear, true), 2, 0, 2250 * time.Millisecond},
		{one(compat.PollyLinear, true), 2, 0.5, 3 * s},
		{one(compat.PollyLinear, true), 2, 1, 3750 * time.Millisecond},
		{one(compat.PollyLinear, false), 2, 1, 3 * s},
		{one(compat.PollyExponential, false), 0, 0.3, 1 * s},
		{one(compat.PollyExponential, false), 1, 0.3, 2 * s},
		{one(compat.PollyExponential, false), 2, 0.3, 4 * s},
		{one(compat.PollyExponential, false), math.MaxInt32 - 1, 0.3, math.MaxInt64},
		{one(compat.PollyExponential, true), 2000, 0.3, math.MaxInt64},
		{p{Retries: 1, Delay: 10 * s, Max: s}, 0, 0.3, s},
		{p{Retries: 1, Delay: 10 * s, Max: s, Curve: compat.PollyLinear, Jitter: true}, 0, 0.3, s},
		{p{Retries: 1, Delay: 10 * s, Max: s, Curve: compat.PollyExponential}, 0, 0.3, s},
		{p{Retries: 1, Delay: 10 * s, Max: s, Curve: compat.PollyExponential, Jitter: true}, 0, 0.3, s},
	} {
		policytest.CheckInvalid(t, c.policy, "")
		d := c.policy.Decide(retrypolicy.Attempt{Retry: c.a + 1, Rand: policytest.Draw(c.u)})
		if off := d.Delay - c.want; !d.Retry || off > 1 || off < -1 {
			t.Errorf("%+v, a = %d, U = %v: %v, want after %v", c.policy, c.a, c.u, d, c.want)
		}
	}
	policytest.WantDelays(t, p{}, retrypolicy.Attempt{}, 0, 2*s, 2*s, 2*s)
	policytest.WantStop(t, p{}, retrypolicy.Attempt{Retry: 4}, retrypolicy.ReasonOutOfAttempts)

	// A delay of the library's generator overrides everything, even Max.
	generator := retrypolicy.RetryAfter{Exact: true, Policy: p{Retries: 1, Delay: s, Max: s}}
	if d := generator.Decide(retrypolicy.Attempt{Retry: 1, After: time.Hour}); d.Delay != time.Hour {
		t.Errorf("%v, want after 1h", d)
	}
}

// DecorrelatedV2 keeps its state in the series.
func TestPollyDecorrelated(t *testing.T) {
	p := compat.Polly{Retries: math.MaxInt32, Delay: s, Curve: compat.PollyExponential, Jitter: true}
	for _, c := range []struct {
		u    float64
		want []float64
	}{
		{0.5, []float64{0.8974, 1.0930, 2.0357, 4.0460, 8.0836, 16.1637, 32.3255, 64.6501}},
		{0.25, []float64{0.6469, 1.0136, 1.7204, 3.4045, 6.7984, 13.5924, 27.1826, 54.3641}},
	} {
		var want []time.Duration
		for _, w := range c.want {
			want = append(want, time.Duration(w*float64(s)))
		}
		policytest.WantDelays(t, p, retrypolicy.Attempt{Rand: policytest.Draw(c.u)}, 51*time.Microsecond, want...)
		p.Max = 10 * s // does not affect the state
		for i := range want {
			want[i] = min(want[i], 10*s)
		}
		policytest.WantDelays(t, p, retrypolicy.Attempt{Rand: policytest.Draw(c.u)}, 51*time.Microsecond, want...)
		p.Max = 0
	}
}

func TestSystemsValidate(t *testing.T) {
	for _, c := range []struct {
		policy retrypolicy.Policy
		want   string
	}{
		{compat.TruncatedExponential{}, ""},
		{compat.TruncatedExponential{Base: -1}, "TruncatedExponential.Base"},
		{compat.TruncatedExponential{Random: -1}, "TruncatedExponential.Random"},
		{compat.TruncatedExponential{Base: 2, Max: 1}, "TruncatedExponential.Max"},
		{compat.TruncatedExponential{Max: s}, "TruncatedExponential.Base is 0"},
		{compat.TruncatedExponential{Random: s}, "TruncatedExponential.Max is not positive"},
		{compat.Truncated(), ""},
		{compat.FetchRetryDefaults(), ""},
		{compat.FetchRetry{Retries: -1}, "FetchRetry.Retries"},
		{compat.FetchRetry{Delay: -1}, "FetchRetry.Delay is negative"},
		{compat.FetchRetry{}, ""},
		{compat.FetchRetry{Retries: 1}, "FetchRetry.Delay is 0"},
		{compat.FetchRetry{OnFunc: func(int, error) bool { return true }}, "FetchRetry.Delay is 0"},
		{compat.FetchRetry{Retries: 1, DelayFunc: func(int, error) time.Duration { return 0 }}, ""},
		{compat.FetchRetry{On: []int{1}, OnFunc: func(int, error) bool { return true }}, "FetchRetry.On and OnFunc"},
		{compat.Azcore{MaxRetries: -1, Delay: -1, Max: -1}, ""},
		{compat.AzureIoTOperations(), ""},
		{compat.RetryableHTTP{}, ""},
		{compat.RetryableHTTP{Min: -1}, "RetryableHTTP.Min"},
		{compat.RetryableHTTP{Max: -1}, "RetryableHTTP.Max is negative"},
		{compat.RetryableHTTP{Min: time.Minute}, "RetryableHTTP.Max is below Min"},
		{compat.Cenkalti(), ""},
		{compat.Failsafe{}, ""},
		{compat.Failsafe{Delay: -1}, "Failsafe.Delay"},
		{compat.Failsafe{Delay: 2, Max: 1}, "Failsafe.Max"},
		{compat.Failsafe{Factor: 0.5}, "Failsafe.Factor"},
		{compat.Failsafe{Delay: 2, RandomMax: 1}, "Failsafe.RandomMax is below"},
		{compat.Failsafe{Delay: 1, RandomMax: 1, Max: 1}, "Failsafe.RandomMax does not go"},
		{compat.Failsafe{Delay: 1, RandomMax: 1, Jitter: 1}, ""},
		{compat.Failsafe{Jitter: 1}, "Failsafe.Delay is 0"},
		{compat.Failsafe{Retries: -1}, "Failsafe.Delay is 0"},
		{compat.Failsafe{RandomMax: s}, "Failsafe.Delay is 0"},
		{compat.Failsafe{Jitter: -1}, "Failsafe.Jitter is"},
		{compat.Failsafe{JitterFactor: math.NaN()}, "Failsafe.JitterFactor"},
		{compat.Failsafe{Jitter: 1, JitterFactor: 1}, "both set"},
		{compat.Polly{}, ""},
		{compat.Polly{Jitter: true, Curve: compat.PollyExponential}, ""},
		{compat.Polly{Delay: s}, "Polly.Retries"},
		{compat.Polly{Retries: 1, Delay: -1}, "Polly.Delay is negative"},
		{compat.Polly{Retries: 9, Curve: compat.PollyExponential, Jitter: true}, "Polly.Delay is 0"},
		{compat.Polly{Retries: 1, Max: -1}, "Polly.Max"},
		{compat.Polly{Curve: compat.PollyExponential + 1}, "Polly.Curve"},
	} {
		policytest.CheckInvalid(t, c.policy, c.want)
	}
}

// Shorthands of the tables.
const (
	ms   = time.Millisecond
	msec = time.Millisecond
	s    = time.Second
)
