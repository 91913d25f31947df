package retrypolicy_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// script returns an operation that fails with the errors of the list in turn, the last of them
// again and again, and counts its calls.
func script(calls *int, list ...error) func(context.Context) error {
	return func(context.Context) error {
		err := list[min(*calls, len(list)-1)]
		*calls++
		return err
	}
}

// retries runs an operation under r, in a bubble, and returns how often it ran, how long all took,
// and how it ended.
func retries(t *testing.T, r retrypolicy.Retrier, list ...error) (calls int, took time.Duration, err error) {
	t.Helper()
	bounded.Test(t, func(t *testing.T) {
		began := time.Now()
		err = r.Do(t.Context(), script(&calls, list...))
		took = time.Since(began)
	})
	return calls, took, err
}

func zeroDraws() uint64 { return drawZero }

func TestTruncatedDelays(t *testing.T) {
	var p retrypolicy.TruncatedExponential
	wantDelays(t, p, retrypolicy.Attempt{Rand: drawZero}, 0, 1001*msec, 2001*msec, 4001*msec, 8001*msec, 15*s, 15*s)
	wantDelays(t, p, retrypolicy.Attempt{Rand: drawLast}, 0, 2000*msec, 3000*msec, 5000*msec, 9000*msec, 15*s, 15*s)
	for _, n := range huge {
		checkDelay(t, p, n, drawLast, 15*s)
	}
	longest := retrypolicy.TruncatedExponential{Base: s, Random: math.MaxInt64, Max: math.MaxInt64}
	checkDelay(t, longest, 99, drawLast, math.MaxInt64)
}

// The note has a row per status, each with its own delay and its own number of retries.
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
		{"503 for ever", []error{status(503)}, 4, 7003 * msec, retrypolicy.OutOfAttempts, false},
		{"429 for ever", []error{status(429)}, 4, 7003 * msec, retrypolicy.OutOfAttempts, false},
		{"504 is one of 5xx, not a time-out", []error{status(504)}, 4, 7003 * msec, retrypolicy.OutOfAttempts, false},
		{"501 and 505 too", []error{status(501), status(505), ok}, 3, 3002 * msec, 0, true},
		{"5xx and 429 share a row", []error{status(500), status(429), status(502), status(429)}, 4, 7003 * msec,
			retrypolicy.OutOfAttempts, false},
		{"no connection counts as 5xx", []error{lost}, 4, 7003 * msec, retrypolicy.OutOfAttempts, false},
		{"408 for ever", []error{status(408)}, 2, s, retrypolicy.OutOfAttempts, false},
		{"408 leaves three retries for 503", []error{status(408), status(503)}, 5, 8003 * msec, retrypolicy.OutOfAttempts,
			false},
		{"503 leaves one retry for 408", []error{status(503), status(503), status(503), status(408)}, 5, 8003 * msec,
			retrypolicy.OutOfAttempts, false},
		{"404", []error{status(404)}, 1, 0, retrypolicy.NotRetryable, false},
		{"425, which others retry", []error{status(425)}, 1, 0, retrypolicy.NotRetryable, false},
		{"503, then 400", []error{status(503), status(400)}, 2, 1001 * msec, retrypolicy.NotRetryable, false},
		{"503, then good", []error{status(503), ok}, 2, 1001 * msec, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := retrypolicy.Retrier{Policy: retrypolicy.Truncated(), Classify: retrypolicy.ClassifyTruncated, Rand: zeroDraws}
			calls, took, err := retries(t, r, c.list...)
			if calls != c.calls || took != c.took || (err == nil) != c.works || err != nil && !errors.Is(err, c.ends) {
				t.Errorf("%d calls in %v, %v; want %d in %v, %v", calls, took, err, c.calls, c.took, c.ends)
			}
		})
	}
}

func TestFetchRetryDefaults(t *testing.T) {
	f := retrypolicy.NewFetchRetry()
	one := f
	one.Retries = 1
	none := f
	none.Retries = 0
	listed := f
	listed.On = []int{202, 503}
	for _, c := range []struct {
		name   string
		policy retrypolicy.FetchRetry
		list   []error
		calls  int
		took   time.Duration
		want   error // found in the result
	}{
		{"network error for ever", f, []error{lost}, 4, 3 * s, lost},
		{"one retry", one, []error{lost}, 2, s, lost},
		{"no retry", none, []error{lost}, 1, 0, lost},
		{"an error that others think final", f, []error{context.DeadlineExceeded, transport.Unauthorized, transport.Invalid},
			4, 3 * s, transport.Invalid},
		{"without a list every answer is final", f, []error{status(503)}, 1, 0, retrypolicy.NotRetryable},
		{"network error, then an answer", f, []error{lost, status(500)}, 2, s, retrypolicy.NotRetryable},
		{"listed", listed, []error{status(503)}, 4, 3 * s, retrypolicy.OutOfAttempts},
		{"not listed", listed, []error{status(500)}, 1, 0, retrypolicy.NotRetryable},
		{"a success that is listed", listed, []error{status(202), status(202), nil}, 3, 2 * s, nil},
		{"a success that is not", listed, []error{status(503), status(201)}, 2, s, nil},
		{"permanent", listed, []error{retrypolicy.Permanent(status(503))}, 1, 0, retrypolicy.NotRetryable},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls, took, err := retries(t, retrypolicy.Retrier{Policy: c.policy, Classify: c.policy.Classify}, c.list...)
			if calls != c.calls || took != c.took || !errors.Is(err, c.want) {
				t.Errorf("%d calls in %v, %v; want %d in %v, %v", calls, took, err, c.calls, c.took, c.want)
			}
		})
	}
}

// The function decides alone: the number of retries is ignored.
func TestFetchRetryFunctions(t *testing.T) {
	var told, delayed []int
	f := retrypolicy.FetchRetry{
		Retries: 2,
		OnFunc:  func(attempt int, err error) bool { told = append(told, attempt); return attempt < 5 },
		DelayFunc: func(attempt int, err error) time.Duration {
			delayed = append(delayed, attempt)
			return s << attempt
		},
	}
	calls, took, err := retries(t, retrypolicy.Retrier{Policy: f, Classify: f.Classify}, status(404), lost, status(200))
	if calls != 6 || took != 31*s || !errors.Is(err, retrypolicy.ByPolicy) {
		t.Errorf("%d calls in %v, %v; want 6 in 31s, stopped by the policy", calls, took, err)
	}
	if want := []int{0, 1, 2, 3, 4, 5}; !reflect.DeepEqual(told, want) || !reflect.DeepEqual(delayed, want[:5]) {
		t.Errorf("OnFunc was told %v, DelayFunc %v", told, delayed)
	}
	checkDelay(t, retrypolicy.FetchRetry{Retries: 1,
		DelayFunc: func(int, error) time.Duration { return -1 }}, 1, drawZero, 0)
}

func TestAzcoreDelays(t *testing.T) {
	var p retrypolicy.Azcore
	at := func(n int, factor float64) time.Duration {
		return time.Duration(float64(int64(1)<<n-1) * 800 * factor * float64(msec))
	}
	wantDelays(t, p, retrypolicy.Attempt{Rand: drawZero}, 1, at(1, 0.8), at(2, 0.8), at(3, 0.8))
	wantDelays(t, p, retrypolicy.Attempt{Rand: draw(0.4)}, 1, 800*msec, 2400*msec, 5600*msec)
	wantDelays(t, p, retrypolicy.Attempt{Rand: drawLast}, 1, at(1, 1.3), at(2, 1.3), at(3, 1.3))
	wantStop(t, p, retrypolicy.Attempt{Retry: 4}, retrypolicy.OutOfAttempts)
	p.MaxRetries = math.MaxInt32
	for _, n := range huge {
		checkDelay(t, p, n, drawZero, time.Minute)
		// The two traps of the SDK's test for overflow.
		checkDelay(t, retrypolicy.Azcore{MaxRetries: math.MaxInt32, Delay: -1}, n, drawLast, 0)
		checkDelay(t, retrypolicy.Azcore{MaxRetries: math.MaxInt32, Delay: 3 * time.Hour, Max: -1}, max(n, 62), drawLast,
			math.MaxInt64)
	}
	wantStop(t, retrypolicy.Azcore{MaxRetries: -1}, retrypolicy.Attempt{Retry: 1}, retrypolicy.OutOfAttempts)
}

func TestAzcoreEngine(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy retrypolicy.Azcore
		list   []error
		calls  int
		took   time.Duration
		want   error
	}{
		{"408, 500, 200", retrypolicy.Azcore{}, []error{status(408), status(500), nil}, 3, 2560 * msec, nil},
		{"always 500", retrypolicy.Azcore{}, []error{status(500)}, 4, 7040 * msec, retrypolicy.OutOfAttempts},
		{"no retries; 408", retrypolicy.Azcore{MaxRetries: -1}, []error{status(408)}, 1, 0, retrypolicy.OutOfAttempts},
		{"408, then an error marked as final", retrypolicy.Azcore{}, []error{status(408), retrypolicy.Permanent(lost)}, 2,
			640 * msec, retrypolicy.NotRetryable},
		{"429, ask again in 300 s", retrypolicy.Azcore{}, []error{&statusError{429, 300 * s}}, 1, 0, retrypolicy.ToldNotTo},
		{"429, ask again in a minute", retrypolicy.Azcore{}, []error{&statusError{429, 60 * s}, nil}, 2, 60 * s, nil},
		{"503, ask again in 1 ms", retrypolicy.Azcore{}, []error{&statusError{503, msec}, nil}, 2, msec, nil},
		{"501 is not on the list", retrypolicy.Azcore{}, []error{status(501)}, 1, 0, retrypolicy.NotRetryable},
		{"nor is 520", retrypolicy.Azcore{}, []error{status(520)}, 1, 0, retrypolicy.NotRetryable},
		{"no connection", retrypolicy.Azcore{}, []error{lost, nil}, 2, 640 * msec, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := retrypolicy.Retrier{Policy: c.policy, Classify: retrypolicy.ClassifyStatuses(retrypolicy.AzcoreStatuses()...),
				Rand: zeroDraws}
			calls, took, err := retries(t, r, c.list...)
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
	plain := retrypolicy.IoTOperations()
	plain.Jitter, plain.Low, plain.High = retrypolicy.NoJitter, 0, 0
	checkInvalid(t, plain, "")
	wantDelays(t, plain, retrypolicy.Attempt{}, 0, 125*msec, 250*msec, 500*msec, s, 2*s, 4*s, 8*s, 16*s, 32*s, 60*s, 60*s)
	p := retrypolicy.IoTOperations()
	wantDelays(t, p, retrypolicy.Attempt{Rand: drawZero}, 1, 118750*time.Microsecond, 237500*time.Microsecond)
	wantDelays(t, p, retrypolicy.Attempt{Rand: drawHalf}, 1, 125*msec, 250*msec, 500*msec, s, 2*s, 4*s, 8*s, 16*s, 32*s,
		60*s, 60*s)
	checkDelay(t, p, math.MaxInt32, drawLast, 63*s)
	last := &transport.Error{Kind: transport.Timeout}
	calls, _, err := retries(t, retrypolicy.Retrier{Policy: retrypolicy.MaxAttempts{Total: 3, Policy: p}}, lost, lost,
		last)
	if calls != 3 || !errors.Is(err, last) || !errors.Is(err, retrypolicy.OutOfAttempts) {
		t.Errorf("%d runs, %v; want 3 and the last error", calls, err)
	}
}

func TestRetryableHTTP(t *testing.T) {
	type p = retrypolicy.RetryableHTTP
	most := p{Retries: math.MaxInt32, Max: 5 * time.Minute}
	for _, c := range []struct {
		i    int
		want time.Duration
	}{{0, 1 * s}, {1, 2 * s}, {3, 8 * s}, {128, 300 * s}, {math.MaxInt32 - 1, 300 * s}} {
		checkDelay(t, most, c.i+1, drawLast, c.want)
	}
	wantDelays(t, p{}, retrypolicy.Attempt{}, 0, 1*s, 2*s, 4*s, 8*s)
	wantStop(t, p{}, retrypolicy.Attempt{Retry: 5}, retrypolicy.OutOfAttempts)
	wantStop(t, p{Retries: -1}, retrypolicy.Attempt{Retry: 1}, retrypolicy.OutOfAttempts)

	linear := p{Linear: true, Max: s}
	for _, c := range []struct {
		name   string
		policy p
		err    error
		kind   transport.Kind
		after  time.Duration
		want   time.Duration
	}{
		{"429 without a header", linear, status(429), transport.Throttled, 0, s},
		{"503 without a header", linear, status(503), transport.Unavailable, 0, s},
		{"502 with 2", linear, status(502), transport.Unavailable, 2 * s, s},
		{"429 with 2", linear, status(429), transport.Throttled, 2 * s, 2 * s},
		{"503 with an hour, verbatim", p{}, status(503), transport.Unavailable, time.Hour, time.Hour},
		{"500 with an hour", p{}, status(500), transport.Unavailable, time.Hour, s},
		{"no status, throttled", p{}, lost, transport.Throttled, time.Hour, time.Hour},
		{"no status, lost", p{}, lost, transport.Network, time.Hour, s},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := c.policy.Decide(retrypolicy.Attempt{Retry: 1, Err: c.err, Kind: c.kind, After: c.after, Rand: drawHalf})
			if !d.Retry || d.Delay != c.want {
				t.Errorf("%v, want after %v", d, c.want)
			}
		})
	}
	spread := p{Retries: 9, Linear: true, Min: s, Max: 3 * s}
	wantDelays(t, spread, retrypolicy.Attempt{Rand: drawZero}, 0, 1*s, 2*s, 3*s)
	wantDelays(t, spread, retrypolicy.Attempt{Rand: drawHalf}, 0, 2*s, 4*s, 6*s)
	checkDelay(t, p{Retries: math.MaxInt32, Linear: true, Min: 1 << 40, Max: 1 << 40}, math.MaxInt32, drawZero,
		math.MaxInt64)
}

func TestCenkalti(t *testing.T) {
	type p = retrypolicy.Cenkalti
	wantDelays(t, p{Initial: 500 * msec, Multiplier: 2, Max: 5 * s}, retrypolicy.Attempt{}, 0, 500*msec, s, 2*s, 4*s, 5*s,
		5*s)
	for _, c := range []struct {
		u    float64
		want time.Duration
	}{{0, 1}, {0.34, 2}, {0.67, 3}, {0.999, 3}} {
		d := p{Initial: 2, Multiplier: 2, Randomization: 0.5, Max: 9}.Decide(retrypolicy.Attempt{Retry: 1, Rand: draw(c.u)})
		if !d.Retry || d.Delay != c.want {
			t.Errorf("U = %v: %v, want after %v", c.u, d, c.want)
		}
	}
	over := p{Initial: math.MaxInt64 / 2, Multiplier: 2.1, Max: math.MaxInt64}
	wantDelays(t, over, retrypolicy.Attempt{Rand: drawLast}, 0, math.MaxInt64/2, math.MaxInt64, math.MaxInt64)
	wantDelays(t, p{}, retrypolicy.Attempt{Rand: drawZero}, 0, 250*msec, 375*msec, 562500*time.Microsecond)
	wantDelays(t, p{}, retrypolicy.Attempt{Rand: drawLast}, 1, 750*msec, 1125*msec, 1687500*time.Microsecond)

	// Looking ahead: no retry whose delay would end after 15 minutes.
	v4 := retrypolicy.CenkaltiV4()
	checkInvalid(t, v4, "")
	if d := v4.Decide(retrypolicy.Attempt{Retry: 1, Rand: drawZero, Elapsed: 15*time.Minute - 250*msec}); !d.Retry {
		t.Errorf("a delay that ends at the limit: %v", d)
	}
	wantStop(t, v4, retrypolicy.Attempt{Retry: 1, Rand: drawZero, Elapsed: 15*time.Minute - 249*msec},
		retrypolicy.OutOfTime)
	calls, took, err := retries(t, retrypolicy.Retrier{Policy: retrypolicy.MaxElapsed{Limit: 5 * s,
		Mode: retrypolicy.LookAhead, Policy: p{Initial: s, Multiplier: 1, Max: s}}}, lost)
	if calls != 6 || took != 5*s || !errors.Is(err, retrypolicy.OutOfTime) {
		t.Errorf("%d calls in %v, %v; want 6 in 5s", calls, took, err)
	}
}

func TestFailsafe(t *testing.T) {
	type p = retrypolicy.Failsafe
	wantDelays(t, p{Retries: -1, Delay: 2 * s, Max: 30 * s}, retrypolicy.Attempt{Rand: drawHalf}, 0, 2*s, 4*s, 8*s, 16*s,
		30*s, 30*s)
	wantDelays(t, p{Retries: -1, Delay: 2 * s, Max: 30 * s, Factor: 3}, retrypolicy.Attempt{}, 0, 2*s, 6*s, 18*s, 30*s)
	wantDelays(t, p{}, retrypolicy.Attempt{}, 0, 0, 0)
	wantStop(t, p{}, retrypolicy.Attempt{Retry: 3}, retrypolicy.OutOfAttempts)
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
		checkInvalid(t, c.policy, "")
		checkDelay(t, c.policy, 1, draw(c.u), c.want)
	}
	asked := retrypolicy.Attempt{Retry: 1, Err: status(503), After: 100}
	if d := (p{Delay: 7, Max: 8, Jitter: 50}).Decide(asked); d.Delay != 150 {
		t.Errorf("a wait that the service asked for gets the jitter: %v", d)
	}
	if d := (p{Delay: 100, Max: 100, Jitter: 50}).Decide(retrypolicy.Attempt{Retry: 1}); d.Delay != 150 {
		t.Errorf("jitter goes past Max: %v", d)
	}
	asked.Err = status(500)
	if d := (p{Delay: 7}).Decide(asked); d.Delay != 7 {
		t.Errorf("a wait after 500 does not count: %v", d)
	}
	// The limit of time shortens the last delay and lets one more try be made at its end.
	r := retrypolicy.Retrier{Policy: retrypolicy.MaxElapsed{Limit: 5 * s, Mode: retrypolicy.Shorten,
		Policy: p{Retries: 4, Delay: 2 * s}}}
	calls, took, err := retries(t, r, lost)
	if calls != 5 || took != 5*s || err == nil {
		t.Errorf("%d calls in %v, %v; want 5 in 5s (0, 2, 4, 5, 5)", calls, took, err)
	}
}

func TestPolly(t *testing.T) {
	type p = retrypolicy.Polly
	one := func(c retrypolicy.PollyCurve, jitter bool) p {
		return p{Retries: math.MaxInt32, Delay: s, Curve: c, Jitter: jitter}
	}
	for _, c := range []struct {
		policy p
		a      int
		u      float64
		want   time.Duration
	}{
		{one(retrypolicy.PollyConstant, true), 0, 0, 750 * msec},
		{one(retrypolicy.PollyConstant, true), 0, 0.4, 950 * msec},
		{one(retrypolicy.PollyConstant, false), 7, 0.4, s},
		{one(retrypolicy.PollyLinear, true), 2, 0, 2250 * msec},
		{one(retrypolicy.PollyLinear, true), 2, 0.5, 3 * s},
		{one(retrypolicy.PollyLinear, true), 2, 1, 3750 * msec},
		{one(retrypolicy.PollyLinear, false), 2, 1, 3 * s},
		{one(retrypolicy.PollyExponential, false), 0, 0.3, 1 * s},
		{one(retrypolicy.PollyExponential, false), 1, 0.3, 2 * s},
		{one(retrypolicy.PollyExponential, false), 2, 0.3, 4 * s},
		{one(retrypolicy.PollyExponential, false), math.MaxInt32 - 1, 0.3, math.MaxInt64},
		{one(retrypolicy.PollyExponential, true), 2000, 0.3, math.MaxInt64},
		{p{Retries: 1, Delay: 10 * s, Max: s}, 0, 0.3, s},
		{p{Retries: 1, Delay: 10 * s, Max: s, Curve: retrypolicy.PollyLinear, Jitter: true}, 0, 0.3, s},
		{p{Retries: 1, Delay: 10 * s, Max: s, Curve: retrypolicy.PollyExponential}, 0, 0.3, s},
		{p{Retries: 1, Delay: 10 * s, Max: s, Curve: retrypolicy.PollyExponential, Jitter: true}, 0, 0.3, s},
	} {
		checkInvalid(t, c.policy, "")
		d := c.policy.Decide(retrypolicy.Attempt{Retry: c.a + 1, Rand: draw(c.u)})
		if off := d.Delay - c.want; !d.Retry || off > 1 || off < -1 {
			t.Errorf("%+v, a = %d, U = %v: %v, want after %v", c.policy, c.a, c.u, d, c.want)
		}
	}
	wantDelays(t, p{}, retrypolicy.Attempt{}, 0, 2*s, 2*s, 2*s)
	wantStop(t, p{}, retrypolicy.Attempt{Retry: 4}, retrypolicy.OutOfAttempts)

	// The library's generator overrides all, also Max, where it gives a delay.
	generator := retrypolicy.RetryAfter{Mode: retrypolicy.Exact, Policy: p{Retries: 1, Delay: s, Max: s}}
	if d := generator.Decide(retrypolicy.Attempt{Retry: 1, After: time.Hour}); d.Delay != time.Hour {
		t.Errorf("%v, want after 1h", d)
	}
}

// The smooth jitter, with its state in the series.
func TestPollyDecorrelated(t *testing.T) {
	p := retrypolicy.Polly{Retries: math.MaxInt32, Delay: s, Curve: retrypolicy.PollyExponential, Jitter: true}
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
		wantDelays(t, p, retrypolicy.Attempt{Rand: draw(c.u)}, 51*time.Microsecond, want...)
		p.Max = 10 * s // does not disturb the state
		for i := range want {
			want[i] = min(want[i], 10*s)
		}
		wantDelays(t, p, retrypolicy.Attempt{Rand: draw(c.u)}, 51*time.Microsecond, want...)
		p.Max = 0
	}
}

func TestSystemsValidate(t *testing.T) {
	for _, c := range []struct {
		policy retrypolicy.Policy
		want   string
	}{
		{retrypolicy.TruncatedExponential{}, ""},
		{retrypolicy.TruncatedExponential{Base: -1}, "TruncatedExponential.Base"},
		{retrypolicy.TruncatedExponential{Random: -1}, "TruncatedExponential.Random"},
		{retrypolicy.TruncatedExponential{Base: 2, Max: 1}, "TruncatedExponential.Max"},
		{retrypolicy.TruncatedExponential{Max: s}, "TruncatedExponential.Base is 0"},
		{retrypolicy.TruncatedExponential{Random: s}, "TruncatedExponential.Max is not positive"},
		{retrypolicy.Truncated(), ""},
		{retrypolicy.NewFetchRetry(), ""},
		{retrypolicy.FetchRetry{Retries: -1}, "FetchRetry.Retries"},
		{retrypolicy.FetchRetry{Delay: -1}, "FetchRetry.Delay is negative"},
		{retrypolicy.FetchRetry{}, ""},
		{retrypolicy.FetchRetry{Retries: 1}, "FetchRetry.Delay is 0"},
		{retrypolicy.FetchRetry{OnFunc: func(int, error) bool { return true }}, "FetchRetry.Delay is 0"},
		{retrypolicy.FetchRetry{Retries: 1, DelayFunc: func(int, error) time.Duration { return 0 }}, ""},
		{retrypolicy.FetchRetry{On: []int{1}, OnFunc: func(int, error) bool { return true }}, "FetchRetry.On and OnFunc"},
		{retrypolicy.Azcore{MaxRetries: -1, Delay: -1, Max: -1}, ""},
		{retrypolicy.IoTOperations(), ""},
		{retrypolicy.RetryableHTTP{}, ""},
		{retrypolicy.RetryableHTTP{Min: -1}, "RetryableHTTP.Min"},
		{retrypolicy.RetryableHTTP{Max: -1}, "RetryableHTTP.Max is negative"},
		{retrypolicy.RetryableHTTP{Min: time.Minute}, "RetryableHTTP.Max is below Min"},
		{retrypolicy.Cenkalti{}, ""},
		{retrypolicy.Cenkalti{Multiplier: 2}, "Cenkalti.Initial"},
		{retrypolicy.Cenkalti{Initial: 1, Max: 1}, "Cenkalti.Multiplier"},
		{retrypolicy.Cenkalti{Initial: 1, Multiplier: math.NaN(), Max: 1}, "Cenkalti.Multiplier"},
		{retrypolicy.Cenkalti{Initial: 1, Multiplier: 1, Randomization: 1.1, Max: 1}, "Cenkalti.Randomization"},
		{retrypolicy.Cenkalti{Initial: 2, Multiplier: 1, Max: 1}, "Cenkalti.Max"},
		{retrypolicy.Failsafe{}, ""},
		{retrypolicy.Failsafe{Delay: -1}, "Failsafe.Delay"},
		{retrypolicy.Failsafe{Delay: 2, Max: 1}, "Failsafe.Max"},
		{retrypolicy.Failsafe{Factor: 0.5}, "Failsafe.Factor"},
		{retrypolicy.Failsafe{Delay: 2, RandomMax: 1}, "Failsafe.RandomMax is below"},
		{retrypolicy.Failsafe{Delay: 1, RandomMax: 1, Max: 1}, "Failsafe.RandomMax does not go"},
		{retrypolicy.Failsafe{Delay: 1, RandomMax: 1, Jitter: 1}, ""},
		{retrypolicy.Failsafe{Jitter: 1}, "Failsafe.Delay is 0"},
		{retrypolicy.Failsafe{Retries: -1}, "Failsafe.Delay is 0"},
		{retrypolicy.Failsafe{RandomMax: s}, "Failsafe.Delay is 0"},
		{retrypolicy.Failsafe{Jitter: -1}, "Failsafe.Jitter is"},
		{retrypolicy.Failsafe{JitterFactor: math.NaN()}, "Failsafe.JitterFactor"},
		{retrypolicy.Failsafe{Jitter: 1, JitterFactor: 1}, "both set"},
		{retrypolicy.Polly{}, ""},
		{retrypolicy.Polly{Jitter: true, Curve: retrypolicy.PollyExponential}, ""},
		{retrypolicy.Polly{Delay: s}, "Polly.Retries"},
		{retrypolicy.Polly{Retries: 1, Delay: -1}, "Polly.Delay is negative"},
		{retrypolicy.Polly{Retries: 9, Curve: retrypolicy.PollyExponential, Jitter: true}, "Polly.Delay is 0"},
		{retrypolicy.Polly{Retries: 1, Max: -1}, "Polly.Max"},
		{retrypolicy.Polly{Curve: retrypolicy.PollyExponential + 1}, "Polly.Curve"},
	} {
		checkInvalid(t, c.policy, c.want)
	}
}
