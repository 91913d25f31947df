package compat_test

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// The vectors P1 to P10 of the official tests, by the SDK's own count: 0 for the first retry.
func TestAzureJavaVectors(t *testing.T) {
	type java = compat.AzureJava
	for _, c := range []struct {
		name   string
		policy java
		count  int
		draw   uint64
		want   time.Duration
	}{
		{"P1", java{}, 0, policytest.DrawHalf, 0},
		{"P2", java{Count: 10, Min: 100 * time.Millisecond, Max: 10 * s, Delta: 100 * time.Millisecond}, 0,
			policytest.DrawHalf, 0},
		{"P3", java{Count: 10, Min: 100 * time.Millisecond, Max: 10 * s, Delta: 100 * time.Millisecond, NoFastRetry: true}, 0,
			policytest.DrawHalf, 100 * time.Millisecond},
		{"P4", java{Count: 10}, 1, policytest.DrawZero, 0},
		{"P5", java{Count: 10, Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}, 1, policytest.DrawZero,
			10 * time.Millisecond},
		{"P6", java{Count: 10000, Min: 10 * time.Millisecond, Max: 100 * time.Millisecond, Delta: 10 * time.Millisecond}, 999,
			policytest.DrawZero, 100 * time.Millisecond},
		{"P7", java{Count: 10000, Min: 10 * time.Millisecond, Max: 100 * time.Millisecond, Delta: 10 * time.Millisecond}, 2,
			policytest.DrawZero, 34 * time.Millisecond},
		{"P10 count 9 of 10", java{Count: 10, Min: 10 * time.Millisecond, Max: 100 * time.Millisecond,
			Delta: 10 * time.Millisecond}, 9, policytest.DrawZero, 100 * time.Millisecond},
		{"fast retry comes before the limit", java{Count: 1, Max: s}, 0, policytest.DrawLast, 0},
		{"a product beyond 32 bits", java{Count: 99, Max: math.MaxInt32 * time.Millisecond,
			Delta: math.MaxInt32 * time.Millisecond}, 98, policytest.DrawLast,
			math.MaxInt32 * time.Millisecond},
		{"whole milliseconds, cut", java{Count: 99, Min: 1999 * time.Microsecond, Max: time.Minute,
			Delta: 10*time.Millisecond + 999*time.Microsecond}, 1, policytest.DrawZero, 9 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			refusal := ""
			if c.policy == (java{Count: 10}) { // the SDK accepts it, and then retries without delay
				refusal = "AzureJava.Max"
			}
			policytest.CheckInvalid(t, c.policy, refusal)
			policytest.CheckDelay(t, c.policy, c.count+1, c.draw, c.want)
		})
	}
	ten := java{Count: 10, Min: 10 * time.Millisecond, Max: 100 * time.Millisecond, Delta: 10 * time.Millisecond}
	policytest.WantStop(t, ten, retrypolicy.Attempt{Retry: 11}, retrypolicy.ReasonOutOfAttempts)
	policytest.CheckInvalid(t, java{Min: time.Millisecond, Max: s}, "AzureJava.Count is below 1") // P8
}

// javaTable has the lowest and the highest delay in ms for each count of the SDK (P9).
var javaTable = [][2]time.Duration{{100, 100}, {180, 219}, {340, 457}, {660, 933}, {1300, 1885}, {2580, 3789},
	{5140, 7597}, {10000, 10000}, {10000, 10000}}

func TestAzureJavaTable(t *testing.T) {
	for count, want := range javaTable {
		for i, draw := range []uint64{policytest.DrawZero, policytest.DrawLast} {
			delay := want[i] * time.Millisecond
			policytest.CheckDelay(t, compat.AzureJava{NoFastRetry: true}, count+1, draw, delay)
			if count == 0 {
				policytest.CheckDelay(t, compat.AzureJava{}, 1, draw, 0)
				continue
			}
			policytest.CheckDelay(t, compat.AzureJava{}, count+1, draw, delay)
			policytest.CheckDelay(t, compat.AzureJava{Resend: true}, count, draw, delay) // a message's first retry has count 1
		}
	}
	for _, n := range policytest.Huge {
		policytest.CheckDelay(t, compat.AzureJava{}, min(n, math.MaxInt32), policytest.DrawHalf, 10*s)
	}
}

// With Count N the SDK allows N retries of a connection and N-1 of a message.
func TestAzureJavaCountsMessagesFromOne(t *testing.T) {
	for count := 1; count < 5; count++ {
		p := compat.AzureJava{Count: count, Max: s, Delta: time.Millisecond}
		for _, c := range []struct {
			resend  bool
			retries int
		}{{false, count}, {true, count - 1}} {
			p.Resend = c.resend
			got := policytest.Sequence(p, retrypolicy.Attempt{}, 9)
			if last := got[len(got)-1]; len(got)-1 != c.retries || last.Reason != retrypolicy.ReasonOutOfAttempts {
				t.Errorf("%+v: %d retries, then %v; want %d", p, len(got)-1, last, c.retries)
			}
		}
	}
}

// The first 30 waits of the SDK's reconnect loop fill its operation timeout of 4 minutes.
func TestAzureJavaThirtyAttemptsInFourMinutes(t *testing.T) {
	p := retrypolicy.MaxElapsed{Limit: 4 * time.Minute, Policy: compat.AzureJava{}}
	for _, c := range []struct {
		draw uint64
		want time.Duration
	}{{policytest.DrawZero, 240200 * time.Millisecond}, {policytest.DrawLast, 244880 * time.Millisecond}} {
		var a retrypolicy.Attempt
		series := policytest.Series(p)
		n := 0
		for {
			a.Retry = n + 1
			a.Rand = c.draw
			d := series.Decide(a)
			if !d.Retry {
				if d.Reason != retrypolicy.ReasonOutOfTime {
					t.Errorf("stopped with %v", d.Reason)
				}
				break
			}
			a.Elapsed += d.Delay
			n++
		}
		if n != 30 || a.Elapsed != c.want {
			t.Errorf("draw %#x: %d retries in %v, want 30 in %v", c.draw, n, a.Elapsed, c.want)
		}
	}
}

func TestAzureNoRetry(t *testing.T) { // P11, P25
	for _, n := range []int{0, 1, -1, 42, 9999} {
		for _, err := range []error{nil, policytest.Lost, io.EOF} {
			policytest.WantStop(t, retrypolicy.NoRetry{}, retrypolicy.Attempt{Retry: n, Err: err}, retrypolicy.ReasonPolicy)
		}
	}
}

// P12: if the attempt itself takes a second or more, the delays are those of the Java code without
// the fast retry.
func TestAzureCSharpV1Strategy(t *testing.T) {
	for count, want := range javaTable {
		for i, draw := range []uint64{policytest.DrawZero, policytest.DrawLast} {
			a := retrypolicy.Attempt{Retry: count + 1, Rand: draw, Elapsed: 10 * s}
			if d := (compat.AzureCSharpV1{}).Decide(a); !d.Retry || d.Delay != want[i]*time.Millisecond {
				t.Errorf("count %d, draw %#x: %v, want after %v", count, draw, d, want[i]*time.Millisecond)
			}
		}
	}
	one := compat.AzureCSharpV1{Count: 1, Max: s}
	policytest.WantStop(t, one, retrypolicy.Attempt{Retry: 2}, retrypolicy.ReasonOutOfAttempts)
}

// Attempts that fail at once are a second apart; long attempts are not delayed.
func TestAzureCSharpV1KeepsAttemptsASecondApart(t *testing.T) {
	for _, c := range []struct {
		took time.Duration // by each attempt
		want []time.Duration
	}{
		{0, []time.Duration{s, s, s, s, 1300 * time.Millisecond, 2580 * time.Millisecond, 5140 * time.Millisecond, 10 * s,
			10 * s}},
		{300 * time.Millisecond, []time.Duration{700 * time.Millisecond, 700 * time.Millisecond, 700 * time.Millisecond,
			700 * time.Millisecond, 1300 * time.Millisecond, 2580 * time.Millisecond}},
		{5 * s, []time.Duration{100 * time.Millisecond, 180 * time.Millisecond, 340 * time.Millisecond,
			660 * time.Millisecond}},
	} {
		testkit.Bubble(t, func(t *testing.T) {
			var starts []time.Duration
			begin := time.Now()
			r := retrypolicy.Retrier{Policy: compat.AzureCSharpV1{Count: len(c.want), Max: 10 * s, Min: 100 * time.Millisecond,
				Delta: 100 * time.Millisecond}, Rand: func() uint64 {
				return 0
			}}
			err := r.Do(t.Context(), func(context.Context) error {
				starts = append(starts, time.Since(begin))
				time.Sleep(c.took)
				return policytest.Lost
			})
			if !errors.Is(err, retrypolicy.ReasonOutOfAttempts) || len(starts) != len(c.want)+1 {
				t.Fatalf("%v after %d tries", err, len(starts))
			}
			for i, want := range c.want {
				if got := starts[i+1] - starts[i] - c.took; got != want {
					t.Errorf("tries of %v: retry %d after %v, want %v", c.took, i+1, got, want)
				}
			}
		})
	}
}

func TestCSharpExponential(t *testing.T) { // P13
	plain := compat.AzureCSharp{Max: 30 * 24 * time.Hour, NoJitter: true}
	for _, c := range []struct {
		n    int
		want time.Duration
	}{{1, 1 << 7}, {5, 1 << 11}, {10, 1 << 16}, {20, 1 << 26}} {
		policytest.CheckDelay(t, plain, c.n, policytest.DrawHalf, c.want*time.Millisecond)
	}
	unlimited := compat.AzureCSharp{Max: 1000 * 24 * time.Hour, NoJitter: true}
	for _, n := range policytest.Huge {
		policytest.CheckDelay(t, plain, max(n, 26), policytest.DrawLast, 30*24*time.Hour)
		policytest.CheckDelay(t, unlimited, max(n, 26), policytest.DrawLast, 1<<32*time.Millisecond)
	}
	// The default: 12 hours at most, 5 % more with the jitter.
	policytest.CheckDelay(t, compat.AzureCSharp{}, 1, policytest.DrawZero, 121600*time.Microsecond)
	policytest.CheckDelay(t, compat.AzureCSharp{}, 1, policytest.DrawHalf, 128*time.Millisecond)
	policytest.CheckDelay(t, compat.AzureCSharp{}, 1, policytest.DrawLast, 134400*time.Microsecond)
	policytest.CheckDelay(t, compat.AzureCSharp{}, math.MaxInt32, policytest.DrawLast, 45360*s)
}

func TestCSharpJitter(t *testing.T) {
	fixed := func(d time.Duration) retrypolicy.Policy {
		return compat.AzureCSharp{Curve: compat.AzureCSharpFixed, Delay: d}
	}
	for _, base := range []time.Duration{0, 1 * time.Millisecond, 10 * time.Millisecond, 49 * time.Millisecond} { // P14
		for _, draw := range []uint64{policytest.DrawZero, policytest.DrawHalf, policytest.DrawLast} {
			policytest.CheckDelay(t, fixed(base), 1, draw, base)
		}
	}
	for _, base := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
		500 * time.Millisecond, s, 10 * s, 20 * s, 30 * s} {
		// P15
		for percent := time.Duration(-5); percent <= 5; percent++ { // each of the eleven with the same chance
			want := base + base*percent/100
			policytest.CheckDelay(t, fixed(base), 7, policytest.Draw((float64(percent)+5.5)/11), want)
		}
		policytest.CheckDelay(t, fixed(base), 7, policytest.DrawLast, base*105/100)
	}
	policytest.CheckDelay(t, fixed(math.MaxInt64), 1, policytest.DrawLast, math.MaxInt64)
}

func TestCSharpIncremental(t *testing.T) { // P16
	p := compat.AzureCSharp{Curve: compat.AzureCSharpIncremental, Delay: s, Max: 100 * time.Minute, NoJitter: true}
	policytest.WantDelays(t, p, retrypolicy.Attempt{}, 0, 1*s, 2*s, 3*s, 4*s, 5*s, 6*s, 7*s, 8*s, 9*s)
	policytest.CheckDelay(t, p, math.MaxInt32, policytest.DrawLast, 100*time.Minute)
	p.NoJitter = false
	policytest.CheckDelay(t, p, math.MaxInt32, policytest.DrawLast, 105*time.Minute)
}

// The SDK increments before it compares.
func TestCSharpMaxRetriesAllowsOneLess(t *testing.T) {
	for limit := 1; limit < 5; limit++ {
		for _, p := range []retrypolicy.Policy{
			compat.AzureCSharp{MaxRetries: limit}, compat.AzureCSharp{Curve: compat.AzureCSharpFixed, MaxRetries: limit},
			compat.AzureCSharp{Curve: compat.AzureCSharpIncremental, MaxRetries: limit, Delay: s},
		} {
			got := policytest.Sequence(p, retrypolicy.Attempt{}, 9)
			if last := got[len(got)-1]; len(got) != limit || last.Reason != retrypolicy.ReasonOutOfAttempts {
				t.Errorf("%+v: %d retries, then %v; want %d", p, len(got)-1, last, limit-1)
			}
		}
	}
}

// P17: a permanent failure of the hub is not retried under any policy. The SDK also refuses errors
// of other libraries; here that needs a classifier.
func TestCSharpNotTransient(t *testing.T) {
	hubOnly := func(err error) retrypolicy.Info {
		if transport.Find(err) == nil {
			return retrypolicy.Info{Verdict: retrypolicy.VerdictFail}
		}
		return retrypolicy.Info{}
	}
	for _, c := range []struct {
		err   error
		tries int
	}{
		{&transport.Error{Kind: transport.Invalid}, 1},
		{&transport.Error{Kind: transport.Unauthorized}, 1},
		{&transport.Error{Kind: transport.NotFound}, 1},
		{errors.New("argument"), 1},
		{io.ErrUnexpectedEOF, 1},
		{context.Canceled, 1},
		{context.DeadlineExceeded, 1},
		{&transport.Error{Kind: transport.Network}, 3},
		{&transport.Error{Kind: transport.Throttled}, 3},
		{&transport.Error{Kind: transport.Unavailable}, 3},
	} {
		for _, p := range []retrypolicy.Policy{
			compat.AzureCSharp{MaxRetries: 3}, compat.AzureCSharp{Curve: compat.AzureCSharpFixed, MaxRetries: 3, Delay: s},
			compat.AzureCSharp{Curve: compat.AzureCSharpIncremental, MaxRetries: 3, Delay: s},
		} {
			testkit.Bubble(t, func(t *testing.T) {
				tries := 0
				r := retrypolicy.Retrier{Policy: p, Classify: hubOnly}
				err := r.Do(t.Context(), func(context.Context) error { tries++; return c.err })
				if tries != c.tries || !errors.Is(err, c.err) {
					t.Errorf("%T, %v: %d tries and %v, want %d", p, c.err, tries, err, c.tries)
				}
			})
		}
	}
}

// The vectors are the waits of the C SDK's tests, which move the clock to the end of each wait:
// delays until the stop.
func TestAzureCVectors(t *testing.T) {
	type c = compat.AzureC
	for _, v := range []struct {
		name   string
		policy c
		draw   uint64
		want   []time.Duration // in seconds
		stops  bool
	}{
		{"default, least", c{}, policytest.DrawZero, []time.Duration{0, 1, 2, 4, 8, 16, 30, 30, 30}, false},
		{"default, greatest", c{}, policytest.DrawLast, []time.Duration{0, 1, 2, 4, 8, 16, 31, 31, 31}, false},
		{"P18 without its limit", c{Jitter: 1}, policytest.DrawLast, []time.Duration{0, 1, 2, 4, 8, 16, 30, 30}, false},
		{"P18", c{Jitter: 1, Limit: 10 * s}, policytest.DrawLast, []time.Duration{0, 1, 2, 4}, true},
		{"P19 without its limit", c{Curve: compat.AzureCExponential, Initial: 2 * s}, policytest.DrawLast,
			[]time.Duration{0, 2, 4,
				8,
				16, 30, 30}, false},
		{"P19", c{Curve: compat.AzureCExponential, Initial: 2 * s, Limit: 15 * s}, policytest.DrawLast,
			[]time.Duration{0, 2, 4, 8},
			true},
		{"P20 interval", c{Curve: compat.AzureCInterval, Limit: 19 * s}, policytest.DrawLast, []time.Duration{0, 5,
			5, 5}, true},
		{"P20 linear without its limit", c{Curve: compat.AzureCLinear}, policytest.DrawLast, []time.Duration{0, 5,
			10, 15, 20, 25,
			30,
			30}, false},
		{"P20 linear", c{Curve: compat.AzureCLinear, Limit: 19 * s}, policytest.DrawLast, []time.Duration{0, 5, 10}, true},
		{"P21 none", c{Curve: compat.AzureCNone}, policytest.DrawLast, nil, true},
		{"P21 immediate", c{Curve: compat.AzureCImmediate, Limit: s}, policytest.DrawLast, []time.Duration{0, 0, 0, 0, 0, 0},
			false},
		{"random, least", c{Curve: compat.AzureCRandom}, policytest.DrawZero, []time.Duration{0, 0, 0, 0}, false},
		{"random, middle", c{Curve: compat.AzureCRandom}, policytest.DrawHalf, []time.Duration{0, 2, 2, 2}, false},
		{"random, greatest", c{Curve: compat.AzureCRandom}, policytest.DrawLast, []time.Duration{0, 4, 4, 4}, false},
		{"a limit that a wait just meets stops", c{Curve: compat.AzureCInterval, Limit: 10 * s}, policytest.DrawLast,
			[]time.Duration{0, 5}, true},
	} {
		t.Run(v.name, func(t *testing.T) {
			policytest.CheckInvalid(t, v.policy, "")
			a := retrypolicy.Attempt{Rand: v.draw}
			series := policytest.Series(v.policy)
			for i, want := range v.want {
				a.Retry = i + 1
				d := series.Decide(a)
				if !d.Retry || d.Delay != want*s {
					t.Fatalf("retry %d, elapsed %v: %v, want after %v", a.Retry, a.Elapsed, d, want*s)
				}
				a.Elapsed += d.Delay
			}
			a.Retry++
			if d := series.Decide(a); d.Retry == v.stops {
				t.Errorf("retry %d, elapsed %v: %v", a.Retry, a.Elapsed, d)
			}
		})
	}
}

// The SDK counts a wait from the beginning of the previous attempt.
func TestAzureCSubtractsTheAttemptFromTheDelay(t *testing.T) {
	p := compat.AzureC{Curve: compat.AzureCInterval}
	series := policytest.Series(p)
	a := retrypolicy.Attempt{Retry: 1, Elapsed: 3 * s}
	for _, c := range []struct {
		took, want time.Duration
	}{{0, 0}, {2 * s, 3 * s}, {4900 * time.Millisecond, 100 * time.Millisecond}, {5 * s, 0}, {time.Hour, 0}, {s, 4 * s}} {
		a.Elapsed += c.took
		d := series.Decide(a)
		if !d.Retry || d.Delay != c.want {
			t.Errorf("retry %d after a try of %v: %v, want after %v", a.Retry, c.took, d, c.want)
		}
		a.Elapsed += d.Delay
		a.Retry++
	}
}

func TestAzureNodeVectors(t *testing.T) { // P22, P23
	p42 := policytest.Draw(0.42)
	for _, c := range []struct {
		n                 int
		normal, throttled time.Duration // in tenths of a millisecond
	}{{0, 0, 97375}, {1, 1000, 100000}, {2, 1105, 105250}, {3, 1315, 115750}, {10, 54655, 600000}, {42, 100000, 600000},
		{math.MaxInt32, 100000, 600000}} {
		for _, k := range []struct {
			kind transport.Kind
			want time.Duration
		}{{transport.Network, c.normal * time.Millisecond / 10}, {transport.Throttled, c.throttled * time.Millisecond / 10}} {
			d := compat.AzureNode{}.Decide(retrypolicy.Attempt{Retry: c.n, Kind: k.kind, Rand: p42})
			if !d.Retry || d.Delay != k.want {
				t.Errorf("%v, n = %d: %v, want after %v", k.kind, c.n, d, k.want)
			}
		}
	}
}

// The highest delays of the code, from the table of the SDKs, and those of the document.
func TestAzureNodeCodeAndDocument(t *testing.T) {
	for i, want := range []time.Duration{100, 125, 175, 275, 475, 875, 1675, 3275, 6475} {
		a := retrypolicy.Attempt{Retry: i + 1, Kind: transport.Network, Rand: policytest.DrawLast}
		got := compat.AzureNode{}.Decide(a).Delay
		if got > want*time.Millisecond || got < want*time.Millisecond-time.Microsecond {
			t.Errorf("code, n = %d: %v, want just below %v", a.Retry, got, want*time.Millisecond)
		}
		for _, k := range []transport.Kind{transport.Network, transport.Throttled} {
			a.Kind = k
			set := retrypolicy.ExponentialBackoffWithJitter{}
			if k == transport.Throttled {
				set = policytest.Throttled
			}
			if got, want := compat.AzureNodeDocumented().Decide(a).Delay, set.Decide(a).Delay; got != want {
				t.Errorf("document, %v, n = %d: %v, want %v", k, a.Retry, got, want)
			}
		}
	}
}

// P24: the SDK's policy accepts a filter that overrides single errors; here a classifier in front
// of the fixed table does so.
func TestAzureNodeFilterOverride(t *testing.T) {
	override := func(err error) retrypolicy.Info {
		switch transport.KindOf(err) {
		case transport.Timeout:
			return retrypolicy.Info{Verdict: retrypolicy.VerdictFail, Kind: transport.Timeout}
		case transport.Unauthorized:
			return retrypolicy.Info{Verdict: retrypolicy.VerdictAgain, Kind: transport.Unauthorized}
		}
		return retrypolicy.Info{}
	}
	for _, c := range []struct {
		kind            transport.Kind
		plain, override int // attempts
	}{{transport.Timeout, 3, 1}, {transport.Unauthorized, 1, 3}, {transport.Network, 3, 3}, {transport.Invalid, 1, 1}} {
		for _, v := range []struct {
			judge retrypolicy.Classifier
			want  int
		}{{nil, c.plain}, {override, c.override}} {
			testkit.Bubble(t, func(t *testing.T) {
				tries := 0
				r := retrypolicy.Retrier{Policy: retrypolicy.MaxAttempts{Total: 3, Policy: compat.AzureNode{}},
					Classify: v.judge}
				err := r.Do(t.Context(), func(context.Context) error { tries++; return &transport.Error{Kind: c.kind} })
				if tries != v.want || !errors.Is(err, c.kind) {
					t.Errorf("%v: %d tries and %v, want %d", c.kind, tries, err, v.want)
				}
			})
		}
	}
}

func TestAzureValidate(t *testing.T) {
	for _, c := range []struct {
		policy retrypolicy.Policy
		want   string
	}{
		{compat.AzureJava{}, ""},
		{compat.AzureJava{NoFastRetry: true, Resend: true}, ""},
		{compat.AzureJava{Count: -1, Max: s}, "AzureJava.Count"},
		{compat.AzureJava{Count: 1, Min: -1}, "AzureJava.Min"},
		{compat.AzureJava{Count: 1, Delta: -1}, "AzureJava.Delta is"},
		{compat.AzureJava{Count: 1, Min: 2, Max: 1}, "AzureJava.Max is below Min"},
		{compat.AzureJava{Count: 1, Max: 1 << 31 * time.Millisecond}, "2^31-1"},
		{compat.AzureCSharpV1{}, ""},
		{compat.AzureCSharpV1{Max: s}, "AzureCSharpV1.Count"},
		{compat.AzureCSharpV1{Count: 1, Min: 2, Max: 1}, "AzureCSharpV1.Max is below Min"},
		{compat.AzureCSharp{MaxRetries: -1}, "AzureCSharp.MaxRetries"},
		{compat.AzureCSharp{Max: -1}, "AzureCSharp.Max is"},
		{compat.AzureCSharp{Curve: compat.AzureCSharpIncremental + 1}, "AzureCSharp.Curve"},
		{compat.AzureCSharp{Curve: compat.AzureCSharpFixed, Delay: -1}, "AzureCSharp.Delay"},
		{compat.AzureCSharp{Delay: 1}, "AzureCSharp.Delay is for other curves"},
		{compat.AzureCSharp{Curve: compat.AzureCSharpIncremental, Delay: -1}, "AzureCSharp.Delay"},
		{compat.AzureCSharp{Curve: compat.AzureCSharpIncremental, Delay: 1, Max: -1}, "AzureCSharp.Max is negative"},
		{compat.AzureCSharp{Curve: compat.AzureCSharpIncremental, Delay: 2, Max: 1}, "AzureCSharp.Max is below Delay"},
		{compat.AzureC{}, ""},
		{compat.AzureC{Curve: compat.AzureCNone + 1}, "AzureC.Curve"},
		{compat.AzureC{Initial: -s}, "AzureC.Initial"},
		{compat.AzureC{Initial: time.Millisecond}, "AzureC.Initial"},
		{compat.AzureC{Initial: 1 << 31 * s}, "AzureC.Initial is above"},
		{compat.AzureC{Max: -s}, "AzureC.Max"},
		{compat.AzureC{Max: 1500 * time.Millisecond}, "AzureC.Max"},
		{compat.AzureC{Jitter: 101}, "AzureC.Jitter"},
		{compat.AzureC{Limit: -1}, "AzureC.Limit"},
		{compat.AzureNode{}, ""},
		{compat.AzureNodeDocumented(), ""},
	} {
		policytest.CheckInvalid(t, c.policy, c.want)
	}
}
