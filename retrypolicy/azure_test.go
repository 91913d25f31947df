package retrypolicy_test

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// The vectors P1 to P10 of the official tests, by the count that the SDK's own policy is given: 0
// for the first retry.
func TestAzureJavaVectors(t *testing.T) {
	type java = retrypolicy.AzureJava
	for _, c := range []struct {
		name   string
		policy java
		count  int
		draw   uint64
		want   time.Duration
	}{
		{"P1", java{}, 0, drawHalf, 0},
		{"P2", java{Count: 10, Min: 100 * msec, Max: 10 * s, Delta: 100 * msec}, 0, drawHalf, 0},
		{"P3", java{Count: 10, Min: 100 * msec, Max: 10 * s, Delta: 100 * msec, NoFastRetry: true}, 0, drawHalf, 100 * msec},
		{"P4", java{Count: 10}, 1, drawZero, 0},
		{"P5", java{Count: 10, Min: 10 * msec, Max: 100 * msec}, 1, drawZero, 10 * msec},
		{"P6", java{Count: 10000, Min: 10 * msec, Max: 100 * msec, Delta: 10 * msec}, 999, drawZero, 100 * msec},
		{"P7", java{Count: 10000, Min: 10 * msec, Max: 100 * msec, Delta: 10 * msec}, 2, drawZero, 34 * msec},
		{"P10 count 9 of 10", java{Count: 10, Min: 10 * msec, Max: 100 * msec, Delta: 10 * msec}, 9, drawZero, 100 * msec},
		{"fast retry comes before the limit", java{Count: 1, Max: s}, 0, drawLast, 0},
		{"a product beyond 32 bits", java{Count: 99, Max: math.MaxInt32 * msec, Delta: math.MaxInt32 * msec}, 98, drawLast,
			math.MaxInt32 * msec},
		{"whole milliseconds, cut", java{Count: 99, Min: 1999 * time.Microsecond, Max: time.Minute,
			Delta: 10*msec + 999*time.Microsecond}, 1, drawZero, 9 * msec},
	} {
		t.Run(c.name, func(t *testing.T) {
			refusal := ""
			if c.policy == (java{Count: 10}) { // the SDK takes it; there it hammers the hub
				refusal = "AzureJava.Max"
			}
			checkInvalid(t, c.policy, refusal)
			checkDelay(t, c.policy, c.count+1, c.draw, c.want)
		})
	}
	ten := java{Count: 10, Min: 10 * msec, Max: 100 * msec, Delta: 10 * msec}
	wantStop(t, ten, retrypolicy.Attempt{Retry: 11}, retrypolicy.OutOfAttempts)
	checkInvalid(t, java{Min: msec, Max: s}, "AzureJava.Count is below 1") // P8
}

// javaTable has the delays in ms by the SDK's count, as P9 and section 7 of the notes on algorithms
// give them: the least and the greatest.
var javaTable = [][2]time.Duration{{100, 100}, {180, 219}, {340, 457}, {660, 933}, {1300, 1885}, {2580, 3789},
	{5140, 7597}, {10000, 10000}, {10000, 10000}}

func TestAzureJavaTable(t *testing.T) {
	for count, want := range javaTable {
		for i, draw := range []uint64{drawZero, drawLast} {
			delay := want[i] * msec
			checkDelay(t, retrypolicy.AzureJava{NoFastRetry: true}, count+1, draw, delay)
			if count == 0 {
				checkDelay(t, retrypolicy.AzureJava{}, 1, draw, 0)
				continue
			}
			checkDelay(t, retrypolicy.AzureJava{}, count+1, draw, delay)
			checkDelay(t, retrypolicy.AzureJava{Resend: true}, count, draw, delay) // a message's first retry has count 1
		}
	}
	for _, n := range huge {
		checkDelay(t, retrypolicy.AzureJava{}, min(n, math.MaxInt32), drawHalf, 10*s)
	}
}

// With Count N the SDK allows N retries of a connection and N-1 of a message.
func TestAzureJavaCountsMessagesFromOne(t *testing.T) {
	for count := 1; count < 5; count++ {
		p := retrypolicy.AzureJava{Count: count, Max: s, Delta: msec}
		for _, c := range []struct {
			resend  bool
			retries int
		}{{false, count}, {true, count - 1}} {
			p.Resend = c.resend
			got := sequence(p, retrypolicy.Attempt{}, 9)
			if last := got[len(got)-1]; len(got)-1 != c.retries || last.Reason != retrypolicy.OutOfAttempts {
				t.Errorf("%+v: %d retries, then %v; want %d", p, len(got)-1, last, c.retries)
			}
		}
	}
}

// The first 30 waits of the SDK's reconnect loop are the 4 minutes of its operation timeout.
func TestAzureJavaThirtyTriesInFourMinutes(t *testing.T) {
	p := retrypolicy.MaxElapsed{Limit: 4 * time.Minute, Policy: retrypolicy.AzureJava{}}
	for _, c := range []struct {
		draw uint64
		want time.Duration
	}{{drawZero, 240200 * msec}, {drawLast, 244880 * msec}} {
		var a retrypolicy.Attempt
		n := 0
		for {
			a.Retry = n + 1
			a.Rand = c.draw
			d := p.Decide(a)
			if !d.Retry {
				if d.Reason != retrypolicy.OutOfTime {
					t.Errorf("stopped with %v", d.Reason)
				}
				break
			}
			a.Last = d
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
		for _, err := range []error{nil, lost, io.EOF} {
			wantStop(t, retrypolicy.NoRetry{}, retrypolicy.Attempt{Retry: n, Err: err}, retrypolicy.ByPolicy)
		}
	}
}

// P12: where the try itself took a second or more, the figures are those of the Java code without
// the fast retry.
func TestAzureCSharpV1Strategy(t *testing.T) {
	for count, want := range javaTable {
		for i, draw := range []uint64{drawZero, drawLast} {
			a := retrypolicy.Attempt{Retry: count + 1, Rand: draw, Elapsed: 10 * s,
				Last: retrypolicy.Decision{Step: uint64(9 * s)}}
			if d := (retrypolicy.AzureCSharpV1{}).Decide(a); !d.Retry || d.Delay != want[i]*msec {
				t.Errorf("count %d, draw %#x: %v, want after %v", count, draw, d, want[i]*msec)
			}
		}
	}
	one := retrypolicy.AzureCSharpV1{Count: 1, Max: s}
	wantStop(t, one, retrypolicy.Attempt{Retry: 2}, retrypolicy.OutOfAttempts)
}

// Tries that fail at once are a second apart, tries that take long are not held up.
func TestAzureCSharpV1KeepsTriesASecondApart(t *testing.T) {
	for _, c := range []struct {
		took time.Duration // by each try
		want []time.Duration
	}{
		{0, []time.Duration{s, s, s, s, 1300 * msec, 2580 * msec, 5140 * msec, 10 * s, 10 * s}},
		{300 * msec, []time.Duration{700 * msec, 700 * msec, 700 * msec, 700 * msec, 1300 * msec, 2580 * msec}},
		{5 * s, []time.Duration{100 * msec, 180 * msec, 340 * msec, 660 * msec}},
	} {
		bounded.Test(t, func(t *testing.T) {
			var starts []time.Duration
			begin := time.Now()
			r := retrypolicy.Retrier{Policy: retrypolicy.AzureCSharpV1{Count: len(c.want), Max: 10 * s, Min: 100 * msec,
				Delta: 100 * msec}, Rand: func() uint64 {
				return 0
			}}
			err := r.Do(t.Context(), func(context.Context) error {
				starts = append(starts, time.Since(begin))
				time.Sleep(c.took)
				return lost
			})
			if !errors.Is(err, retrypolicy.OutOfAttempts) || len(starts) != len(c.want)+1 {
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
	plain := retrypolicy.CSharpExponential{Max: 30 * 24 * time.Hour, NoJitter: true}
	for _, c := range []struct {
		n    int
		want time.Duration
	}{{1, 1 << 7}, {5, 1 << 11}, {10, 1 << 16}, {20, 1 << 26}} {
		checkDelay(t, plain, c.n, drawHalf, c.want*msec)
	}
	unlimited := retrypolicy.CSharpExponential{Max: 1000 * 24 * time.Hour, NoJitter: true}
	for _, n := range huge {
		checkDelay(t, plain, max(n, 26), drawLast, 30*24*time.Hour)
		checkDelay(t, unlimited, max(n, 26), drawLast, 1<<32*msec)
	}
	// The default: 12 hours at most, 5 % more with the jitter.
	checkDelay(t, retrypolicy.CSharpExponential{}, 1, drawZero, 121600*time.Microsecond)
	checkDelay(t, retrypolicy.CSharpExponential{}, 1, drawHalf, 128*msec)
	checkDelay(t, retrypolicy.CSharpExponential{}, 1, drawLast, 134400*time.Microsecond)
	checkDelay(t, retrypolicy.CSharpExponential{}, math.MaxInt32, drawLast, 45360*s)
}

func TestCSharpJitter(t *testing.T) {
	for _, base := range []time.Duration{0, 1 * msec, 10 * msec, 49 * msec} { // P14
		for _, draw := range []uint64{drawZero, drawHalf, drawLast} {
			checkDelay(t, retrypolicy.CSharpFixed{Delay: base}, 1, draw, base)
		}
	}
	for _, base := range []time.Duration{50 * msec, 100 * msec, 250 * msec, 500 * msec, s, 10 * s, 20 * s, 30 * s} { // P15
		for percent := time.Duration(-5); percent <= 5; percent++ { // each of the eleven with the same chance
			want := base + base*percent/100
			checkDelay(t, retrypolicy.CSharpFixed{Delay: base}, 7, draw((float64(percent)+5.5)/11), want)
		}
		checkDelay(t, retrypolicy.CSharpFixed{Delay: base}, 7, drawLast, base*105/100)
	}
	checkDelay(t, retrypolicy.CSharpFixed{Delay: math.MaxInt64}, 1, drawLast, math.MaxInt64)
}

func TestCSharpIncremental(t *testing.T) { // P16
	p := retrypolicy.CSharpIncremental{Step: s, Max: 100 * time.Minute, NoJitter: true}
	wantDelays(t, p, retrypolicy.Attempt{}, 0, 1*s, 2*s, 3*s, 4*s, 5*s, 6*s, 7*s, 8*s, 9*s)
	checkDelay(t, p, math.MaxInt32, drawLast, 100*time.Minute)
	p.NoJitter = false
	checkDelay(t, p, math.MaxInt32, drawLast, 105*time.Minute)
}

// The SDK counts before it compares.
func TestCSharpMaxRetriesAllowsOneLess(t *testing.T) {
	for limit := 1; limit < 5; limit++ {
		for _, p := range []retrypolicy.Policy{
			retrypolicy.CSharpExponential{MaxRetries: limit}, retrypolicy.CSharpFixed{MaxRetries: limit},
			retrypolicy.CSharpIncremental{MaxRetries: limit, Step: s},
		} {
			got := sequence(p, retrypolicy.Attempt{}, 9)
			if last := got[len(got)-1]; len(got) != limit || last.Reason != retrypolicy.OutOfAttempts {
				t.Errorf("%+v: %d retries, then %v; want %d", p, len(got)-1, last, limit-1)
			}
		}
	}
}

// P17: what is not a transient failure of the hub is not retried, whatever the policy. The SDK also
// refuses errors of other libraries, which takes a classifier here.
func TestCSharpNotTransient(t *testing.T) {
	hubOnly := func(err error) retrypolicy.Info {
		if transport.Find(err) == nil {
			return retrypolicy.Info{Verdict: retrypolicy.Fail}
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
			retrypolicy.CSharpExponential{MaxRetries: 3}, retrypolicy.CSharpFixed{MaxRetries: 3, Delay: s},
			retrypolicy.CSharpIncremental{MaxRetries: 3, Step: s},
		} {
			bounded.Test(t, func(t *testing.T) {
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

// cWaits are the waits of the C SDK's tests, which move the clock to the end of each wait: delays
// until the stop.
func TestAzureCVectors(t *testing.T) {
	type c = retrypolicy.AzureC
	for _, v := range []struct {
		name   string
		policy c
		draw   uint64
		want   []time.Duration // in seconds
		stops  bool
	}{
		{"default, least", c{}, drawZero, []time.Duration{0, 1, 2, 4, 8, 16, 30, 30, 30}, false},
		{"default, greatest", c{}, drawLast, []time.Duration{0, 1, 2, 4, 8, 16, 31, 31, 31}, false},
		{"P18 without its limit", c{Jitter: 1}, drawLast, []time.Duration{0, 1, 2, 4, 8, 16, 30, 30}, false},
		{"P18", c{Jitter: 1, Limit: 10 * s}, drawLast, []time.Duration{0, 1, 2, 4}, true},
		{"P19 without its limit", c{Curve: retrypolicy.CExponential, Initial: 2 * s}, drawLast, []time.Duration{0, 2, 4, 8,
			16, 30, 30}, false},
		{"P19", c{Curve: retrypolicy.CExponential, Initial: 2 * s, Limit: 15 * s}, drawLast, []time.Duration{0, 2, 4, 8},
			true},
		{"P20 interval", c{Curve: retrypolicy.CInterval, Limit: 19 * s}, drawLast, []time.Duration{0, 5, 5, 5}, true},
		{"P20 linear without its limit", c{Curve: retrypolicy.CLinear}, drawLast, []time.Duration{0, 5, 10, 15, 20, 25, 30,
			30}, false},
		{"P20 linear", c{Curve: retrypolicy.CLinear, Limit: 19 * s}, drawLast, []time.Duration{0, 5, 10}, true},
		{"P21 none", c{Curve: retrypolicy.CNone}, drawLast, nil, true},
		{"P21 immediate", c{Curve: retrypolicy.CImmediate, Limit: s}, drawLast, []time.Duration{0, 0, 0, 0, 0, 0}, false},
		{"random, least", c{Curve: retrypolicy.CRandom}, drawZero, []time.Duration{0, 0, 0, 0}, false},
		{"random, middle", c{Curve: retrypolicy.CRandom}, drawHalf, []time.Duration{0, 2, 2, 2}, false},
		{"random, greatest", c{Curve: retrypolicy.CRandom}, drawLast, []time.Duration{0, 4, 4, 4}, false},
		{"a limit that a wait just meets stops", c{Curve: retrypolicy.CInterval, Limit: 10 * s}, drawLast,
			[]time.Duration{0, 5}, true},
	} {
		t.Run(v.name, func(t *testing.T) {
			checkInvalid(t, v.policy, "")
			a := retrypolicy.Attempt{Rand: v.draw}
			for i, want := range v.want {
				a.Retry = i + 1
				d := v.policy.Decide(a)
				if !d.Retry || d.Delay != want*s {
					t.Fatalf("retry %d, elapsed %v: %v, want after %v", a.Retry, a.Elapsed, d, want*s)
				}
				a.Elapsed += d.Delay
				a.Last = d
			}
			a.Retry++
			if d := v.policy.Decide(a); d.Retry == v.stops {
				t.Errorf("retry %d, elapsed %v: %v", a.Retry, a.Elapsed, d)
			}
		})
	}
}

// The SDK counts a wait from the beginning of the try before.
func TestAzureCTakesTheTryOffTheWait(t *testing.T) {
	p := retrypolicy.AzureC{Curve: retrypolicy.CInterval}
	a := retrypolicy.Attempt{Retry: 1, Elapsed: 3 * s}
	for _, c := range []struct {
		took, want time.Duration
	}{{0, 0}, {2 * s, 3 * s}, {4900 * msec, 100 * msec}, {5 * s, 0}, {time.Hour, 0}, {s, 4 * s}} {
		a.Elapsed += c.took
		d := p.Decide(a)
		if !d.Retry || d.Delay != c.want {
			t.Errorf("retry %d after a try of %v: %v, want after %v", a.Retry, c.took, d, c.want)
		}
		a.Elapsed += d.Delay
		a.Retry++
		a.Last = d
	}
}

func TestAzureNodeVectors(t *testing.T) { // P22, P23
	p42 := draw(0.42)
	for _, c := range []struct {
		n                 int
		normal, throttled time.Duration // in tenths of a millisecond
	}{{0, 0, 97375}, {1, 1000, 100000}, {2, 1105, 105250}, {3, 1315, 115750}, {10, 54655, 600000}, {42, 100000, 600000},
		{math.MaxInt32, 100000, 600000}} {
		for _, k := range []struct {
			kind transport.Kind
			want time.Duration
		}{{transport.Network, c.normal * msec / 10}, {transport.Throttled, c.throttled * msec / 10}} {
			d := retrypolicy.AzureNode{}.Decide(retrypolicy.Attempt{Retry: c.n, Kind: k.kind, Rand: p42})
			if !d.Retry || d.Delay != k.want {
				t.Errorf("%v, n = %d: %v, want after %v", k.kind, c.n, d, k.want)
			}
		}
	}
}

// The greatest delays of the code as the table of the SDKs lists them, and those of the document.
func TestAzureNodeCodeAndDocument(t *testing.T) {
	for i, want := range []time.Duration{100, 125, 175, 275, 475, 875, 1675, 3275, 6475} {
		a := retrypolicy.Attempt{Retry: i + 1, Kind: transport.Network, Rand: drawLast}
		got := retrypolicy.AzureNode{}.Decide(a).Delay
		if got > want*msec || got < want*msec-time.Microsecond {
			t.Errorf("code, n = %d: %v, want just below %v", a.Retry, got, want*msec)
		}
		for _, k := range []transport.Kind{transport.Network, transport.Throttled} {
			a.Kind = k
			set := retrypolicy.ExponentialBackoffWithJitter{}
			if k == transport.Throttled {
				set = throttled
			}
			if got, want := retrypolicy.AzureNodeDocumented().Decide(a).Delay, set.Decide(a).Delay; got != want {
				t.Errorf("document, %v, n = %d: %v, want %v", k, a.Retry, got, want)
			}
		}
	}
}

// P24: the SDK's policy takes a filter that overrides single errors; here it is a classifier in
// front of the fixed table.
func TestAzureNodeFilterOverride(t *testing.T) {
	override := func(err error) retrypolicy.Info {
		switch transport.KindOf(err) {
		case transport.Timeout:
			return retrypolicy.Info{Verdict: retrypolicy.Fail, Kind: transport.Timeout}
		case transport.Unauthorized:
			return retrypolicy.Info{Verdict: retrypolicy.Again, Kind: transport.Unauthorized}
		}
		return retrypolicy.Info{}
	}
	for _, c := range []struct {
		kind            transport.Kind
		plain, override int // tries
	}{{transport.Timeout, 3, 1}, {transport.Unauthorized, 1, 3}, {transport.Network, 3, 3}, {transport.Invalid, 1, 1}} {
		for _, v := range []struct {
			classify retrypolicy.Classifier
			want     int
		}{{nil, c.plain}, {override, c.override}} {
			bounded.Test(t, func(t *testing.T) {
				tries := 0
				r := retrypolicy.Retrier{Policy: retrypolicy.MaxAttempts{Total: 3, Policy: retrypolicy.AzureNode{}},
					Classify: v.classify}
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
		{retrypolicy.AzureJava{}, ""},
		{retrypolicy.AzureJava{NoFastRetry: true, Resend: true}, ""},
		{retrypolicy.AzureJava{Count: -1, Max: s}, "AzureJava.Count"},
		{retrypolicy.AzureJava{Count: 1, Min: -1}, "AzureJava.Min"},
		{retrypolicy.AzureJava{Count: 1, Delta: -1}, "AzureJava.Delta is"},
		{retrypolicy.AzureJava{Count: 1, Min: 2, Max: 1}, "AzureJava.Max is below Min"},
		{retrypolicy.AzureJava{Count: 1, Max: 1 << 31 * msec}, "2^31-1"},
		{retrypolicy.AzureCSharpV1{}, ""},
		{retrypolicy.AzureCSharpV1{Max: s}, "AzureCSharpV1.Count"},
		{retrypolicy.AzureCSharpV1{Count: 1, Min: 2, Max: 1}, "AzureCSharpV1.Max is below Min"},
		{retrypolicy.CSharpExponential{MaxRetries: -1}, "CSharpExponential.MaxRetries"},
		{retrypolicy.CSharpExponential{Max: -1}, "CSharpExponential.Max is"},
		{retrypolicy.CSharpFixed{MaxRetries: -1}, "CSharpFixed.MaxRetries"},
		{retrypolicy.CSharpFixed{Delay: -1}, "CSharpFixed.Delay"},
		{retrypolicy.CSharpIncremental{MaxRetries: -1}, "CSharpIncremental.MaxRetries"},
		{retrypolicy.CSharpIncremental{Step: -1}, "CSharpIncremental.Step"},
		{retrypolicy.CSharpIncremental{Max: -1}, "CSharpIncremental.Max is negative"},
		{retrypolicy.CSharpIncremental{Step: 2, Max: 1}, "CSharpIncremental.Max is below Step"},
		{retrypolicy.AzureC{}, ""},
		{retrypolicy.AzureC{Curve: retrypolicy.CNone + 1}, "AzureC.Curve"},
		{retrypolicy.AzureC{Initial: -s}, "AzureC.Initial"},
		{retrypolicy.AzureC{Initial: msec}, "AzureC.Initial"},
		{retrypolicy.AzureC{Initial: 1 << 31 * s}, "AzureC.Initial is above"},
		{retrypolicy.AzureC{Max: -s}, "AzureC.Max"},
		{retrypolicy.AzureC{Max: 1500 * msec}, "AzureC.Max"},
		{retrypolicy.AzureC{Jitter: 101}, "AzureC.Jitter"},
		{retrypolicy.AzureC{Limit: -1}, "AzureC.Limit"},
		{retrypolicy.AzureNode{}, ""},
		{retrypolicy.AzureNodeDocumented(), ""},
	} {
		checkInvalid(t, c.policy, c.want)
	}
}
