package compat_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

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
			p := compat.AzureCSharpV1()
			p.Count, p.Max, p.Min, p.Delta = len(c.want), 10*s, 100*ms, 100*ms
			r := retrypolicy.Retrier{Policy: p, Rand: func() uint64 { return 0 }}
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
			compat.AzureCSharp{MaxRetries: 3},
			compat.AzureCSharp{Curve: compat.AzureCSharpFixed, MaxRetries: 3, Delay: s},
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

// Do leaves out its own limit only for a policy that stops.
func TestAzureCIsLimitedIfItStops(t *testing.T) {
	for curve := range compat.AzureCNone + 1 {
		for _, limit := range []time.Duration{0, time.Minute} {
			p := compat.AzureC{Curve: curve, Limit: limit}
			stops := !p.Decide(retrypolicy.Attempt{Retry: 1000, Elapsed: time.Hour}).Retry
			if p.Limited() != stops {
				t.Errorf("%+v: Limited is %v, but the policy stops: %v", p, p.Limited(), stops)
			}
		}
	}
}
