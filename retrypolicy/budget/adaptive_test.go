//go:build !tinygo

package budget_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// outcome is an attempt that ended at s seconds.
func outcome(s float64, throttled bool) retrypolicy.Attempt {
	a := retrypolicy.Attempt{Now: policytest.Sec(s)}
	if throttled {
		a.Kind, a.Err = transport.Throttled, transport.Throttled
	}
	return a
}

// limiter is a limiter and operations under it that are not retried.
type limiter struct {
	*budget.Adaptive
	*crowd
}

// newLimiter returns a limiter that begins at start, or at its first use if that is zero.
func newLimiter(start time.Time) limiter {
	l := budget.NewAdaptive()
	policytest.Series(l.Wrap(retrypolicy.NoRetry{})).Admit(retrypolicy.Attempt{Now: start})
	return limiter{l, newCrowd(l.Wrap(retrypolicy.NoRetry{}))}
}

func (l limiter) observe(n int, a retrypolicy.Attempt) {
	for range n {
		l.Observe(a)
	}
}

func wantNear(t *testing.T, what string, got, want float64) {
	t.Helper()
	if !(math.Abs(got-want) <= 5e-7) {
		t.Errorf("%s: %.12g, want %.12g", what, got, want)
	}
}

// The SDKs for Kotlin, Go, Java and JavaScript share this sequence.
func TestAdaptivePublishedSequence(t *testing.T) {
	l := newLimiter(policytest.Epoch)
	for i, want := range []float64{.5, .5, .5, .5, .5, .6912, 1.0976, 1.6384, 2.3328, 3.02848} {
		at := float64(i+1) / 5
		last := i == 9
		l.Observe(outcome(at, last))
		rate, on := l.Rate()
		wantNear(t, "fill rate at "+policytest.Sec(at).Sub(policytest.Epoch).String(), rate, want)
		if on != last {
			t.Errorf("at %v s: limiting %v", at, on)
		}
	}
}

func TestAdaptiveWaitsAfterTheFirstThrottle(t *testing.T) {
	for _, c := range []struct{ at, wait, rate float64 }{
		{.5, .892857143, 1.12}, {1, 1.785714286, .56}, {5, 2, .5}, {6, 2, .5}, {7, 2, .5},
	} {
		l := newLimiter(policytest.Epoch)
		if d := l.Admit(retrypolicy.Attempt{Now: policytest.Sec(0)}); !d.Retry || d.Delay != 0 {
			t.Errorf("before the first throttle: %v", d)
		}
		l.Observe(outcome(c.at, true))
		d := l.Admit(retrypolicy.Attempt{Now: policytest.Sec(c.at)})
		wantNear(t, "wait", d.Delay.Seconds(), c.wait)
		rate, on := l.Rate()
		wantNear(t, "rate", rate, c.rate)
		if !on || !d.Retry {
			t.Errorf("%v: not limiting", c)
		}
		// A waiting caller reserves nothing: a caller that asks halfway gets the next turn, and one of
		// the two gets the token.
		half := l.Admit(retrypolicy.Attempt{Now: policytest.Sec(c.at).Add(d.Delay / 2)})
		wantNear(t, "wait at half, the turn of the next", half.Delay.Seconds(), c.wait/2+min(1/c.rate, 1))
		first := l.Admit(retrypolicy.Attempt{Now: policytest.Sec(c.at).Add(d.Delay)})
		second := l.Admit(retrypolicy.Attempt{Now: policytest.Sec(c.at).Add(d.Delay)})
		if first.Delay != 0 || second.Delay == 0 {
			t.Errorf("%v: after the wait: %v, %v", c, first, second)
		}
		wantNear(t, "wait for the next token, the turns begin anew", second.Delay.Seconds(), 1/c.rate)
	}
}

// Growth limits the rate to twice the measured rate, with the default constants.
func TestAdaptiveLimitIsBoundedByTheMeasuredRate(t *testing.T) {
	l := newLimiter(policytest.Epoch)
	l.observe(9, outcome(.4, false))
	l.Observe(outcome(.5, true)) // 10 in half a second: measured 16
	wantNear(t, "after beta", rateOf(l), 16*.7)
	l.Observe(outcome(.6, true)) // still measured 16, but the limit counts
	wantNear(t, "after beta twice", rateOf(l), 16*.7*.7)
	l.observe(2488, outcome(.6, false))
	// 100 s later the curve is at 0.4 * 100^3; measured, with the one before, 2490/99.5*0.8 + 16*0.2
	l.Observe(outcome(100, false))
	wantNear(t, "ceiling", rateOf(l), 2*(2490/99.5*.8+16*.2))
}

// Before the first throttled attempt the curve counts from the start, not from the whole second
// before it.
func TestAdaptiveCurveBeginsAtTheStart(t *testing.T) {
	l := newLimiter(policytest.Sec(.5))
	l.observe(999, outcome(.9, false))
	l.Observe(outcome(2.5, false))
	wantNear(t, "rate after 2 s", rateOf(l), .4*8)
}

func rateOf(l limiter) float64 {
	rate, _ := l.Rate()
	return rate
}

func TestAdaptiveThrottlesByKind(t *testing.T) {
	l := newLimiter(policytest.Epoch)
	for _, r := range errfilter.Rules() {
		k := r.Kind
		l.Observe(retrypolicy.Attempt{Now: policytest.Sec(1), Kind: k, Err: transport.Network})
		if _, on := l.Rate(); on != (k >= transport.Throttled) {
			t.Errorf("after %v: limiting %v", k, on)
		}
	}
}

// Clocks: the first call sets the start. An older time, the zero time, and a jump of centuries have
// no bad effect.
func TestAdaptiveOddTimes(t *testing.T) {
	l := newLimiter(time.Time{})
	if d := l.Admit(retrypolicy.Attempt{}); d != (retrypolicy.Decision{Retry: true}) {
		t.Errorf("without a time: %v", d)
	}
	l.Admit(retrypolicy.Attempt{Now: policytest.Sec(.25)})
	l.Observe(outcome(.5, true)) // as a limiter that starts at 0: the half-seconds are the clock's
	wantNear(t, "rate", rateOf(l), 1.12)
	d := l.Admit(retrypolicy.Attempt{Now: policytest.Sec(.5)})
	turns := 1.0
	for _, now := range []time.Time{policytest.Sec(.4), policytest.Sec(-1e6), {}} {
		older := l.Admit(retrypolicy.Attempt{Now: now})
		wantNear(t, "wait at an odd time", older.Delay.Seconds(), d.Delay.Seconds()+min(1, turns/1.12))
		turns++
	}
	far := policytest.Epoch.AddDate(2000, 0, 0)
	l.Observe(retrypolicy.Attempt{Now: far})
	rate := rateOf(l)
	if !(rate >= 0.5 && rate < 1) {
		t.Errorf("rate %v after 2000 years of silence", rate)
	}
	if d := l.Admit(retrypolicy.Attempt{Now: far}); d.Delay != 0 {
		t.Errorf("no token after 2000 years: %v", d)
	}
}

// closed is a policy whose series admit as d says and count the calls.
type closed struct {
	d          retrypolicy.Decision
	asked, got int
}

func (c *closed) Begin(retrypolicy.Start) retrypolicy.Series { return c }
func (c *closed) Decide(retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Decision{Retry: true, Delay: 30 * time.Second}
}
func (c *closed) Admit(retrypolicy.Attempt) retrypolicy.Decision  { c.asked++; return c.d }
func (c *closed) Report(retrypolicy.Verdict, retrypolicy.Attempt) { c.got++ }
func (c *closed) End()                                            {}

// An attempt that the inner policy refuses costs no token, and without a token the inner policy is
// not asked.
func TestAdaptiveTakesATokenOnlyForAnAttemptThatBegins(t *testing.T) {
	inside := &closed{d: retrypolicy.Decision{Retry: true, Delay: time.Second}}
	l := newLimiter(policytest.Epoch)
	p := newCrowd(l.Wrap(inside))
	p.Observe(outcome(.5, true))
	if inside.got != 1 {
		t.Error("the outcome did not reach the policy inside")
	}
	if d := p.Admit(retrypolicy.Attempt{Now: policytest.Sec(.5)}); d.Delay == 0 || inside.asked != 0 {
		t.Errorf("without a token: %v, the policy inside was asked %d times", d, inside.asked)
	}
	for i := range 3 {
		if d := p.Admit(retrypolicy.Attempt{Now: policytest.Sec(2)}); d.Delay != time.Second ||
			inside.asked != i+1 {
			t.Errorf("the wait of the policy inside: %v", d)
		}
	}
	inside.d = retrypolicy.Decision{Reason: retrypolicy.ReasonRejected}
	if d := p.Admit(retrypolicy.Attempt{Now: policytest.Sec(2)}); d != inside.d {
		t.Errorf("the refusal of the policy inside: %v", d)
	}
	inside.d = retrypolicy.Decision{Retry: true}
	if d := p.Admit(retrypolicy.Attempt{Now: policytest.Sec(2)}); d != inside.d {
		t.Errorf("the one token was lost: %v", d)
	}
	if d := p.Admit(retrypolicy.Attempt{Now: policytest.Sec(2)}); d.Delay == 0 {
		t.Error("there were two tokens")
	}
}

func TestAdaptiveWaitEndsWithTheContext(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		l := newLimiter(time.Time{})
		l.Admit(retrypolicy.Attempt{Now: time.Now()})
		l.Observe(retrypolicy.Attempt{Now: time.Now(), Kind: transport.Throttled, Err: transport.Throttled}) // 0.5 a second
		p := newCrowd(l.Wrap(retrypolicy.NoRetry{}))
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(300*time.Millisecond, cancel)
		began := time.Now()
		err := retrypolicy.Do(ctx, p, func(context.Context) error { t.Error("the operation ran"); return nil })
		if time.Since(began) != 300*time.Millisecond || !errors.Is(err, retrypolicy.ReasonCancelled) ||
			!errors.Is(err, context.Canceled) {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		// The next caller has the turn after the caller that left: the rest of 2 s and, as the token is
		// not taken meanwhile, the longest turn, a second.
		began = time.Now()
		if err := retrypolicy.Do(context.Background(), p, func(context.Context) error { return nil }); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited != 3*time.Second-300*time.Millisecond {
			t.Errorf("waited %v", waited)
		}
	})
}

// Thousands of users share a limiter in front of a service with a limited rate. All calls succeed,
// and the service refuses only a small part.
func TestAdaptiveManyUsers(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const users, capacity = 2000, 200
	testkit.Bubble(t, func(t *testing.T) {
		o := compat.AWSStandard.Options()
		o.Attempts = 1000
		o.Quota = nil
		l := newLimiter(time.Time{})
		p := newCrowd(l.Wrap(policytest.Must(compat.NewAWS(o))))
		service := &limitedService{perSecond: capacity}
		began := time.Now()
		var all sync.WaitGroup
		for i := range users {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			start := time.Duration(rng.Int64N(int64(8 * time.Second)))
			all.Go(func() {
				time.Sleep(start)
				r := retrypolicy.Retrier{Policy: p, Rand: rng.Uint64}
				if err := r.Do(context.Background(), service.call); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			})
		}
		all.Wait()
		took := time.Since(began)
		t.Logf("%d users in %v; %d tries let in, %d of them refused", users, took, service.calls, service.refused)
		if service.calls-service.refused != users {
			t.Errorf("seed %d: %d successes", seed, service.calls-service.refused)
		}
		if took < users/capacity*time.Second || took > 2*time.Minute {
			t.Errorf("seed %d: took %v", seed, took)
		}
		if service.refused > users {
			t.Errorf("seed %d: %d tries were refused; the limiter does not limit", seed, service.refused)
		}
		if rate, on := l.Rate(); !on || rate > 2.5*capacity || math.IsNaN(rate) {
			t.Errorf("seed %d: rate %v, limiting %v", seed, rate, on)
		}
	})
}

// limitedService accepts a fixed number of calls in each second of the clock.
type limitedService struct {
	mu             sync.Mutex
	perSecond      int
	second         int64
	taken          int
	calls, refused int
}

func (s *limitedService) call(context.Context) error {
	time.Sleep(20 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now().Unix(); now != s.second {
		s.second, s.taken = now, 0
	}
	s.calls++
	s.taken++
	if s.taken > s.perSecond {
		s.refused++
		return transport.Throttled
	}
	return nil
}

// In no interval do more attempts begin than its tokens allow: the integral of the rate, plus the
// size of the bucket.
func TestAdaptiveNeverLetsMoreInThanItsRate(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	l := newLimiter(policytest.Epoch)
	now, budget := 1.0, 0.0
	l.Observe(outcome(now, true))
	for range 50_000 {
		step := rng.ExpFloat64() / 20
		rate, _ := l.Rate()
		budget = min(budget+step*rate, max(rate, 1)) + 1e-6
		now += step
		d := l.Admit(retrypolicy.Attempt{Now: policytest.Sec(now)})
		if !d.Retry || d.Delay < 0 {
			t.Fatalf("seed %d: %v", seed, d)
		}
		if d.Delay > 0 {
			continue
		}
		if budget--; budget < -1e-3 {
			t.Fatalf("seed %d: at %v s let in with %v tokens", seed, now, budget)
		}
		l.Observe(outcome(now, rng.IntN(20) == 0))
		rate, _ = l.Rate()
		budget = min(budget, max(rate, 1))
		if !(rate >= 0.5) {
			t.Fatalf("seed %d: rate %v", seed, rate)
		}
	}
}

func BenchmarkAdaptive(b *testing.B) {
	l := budget.NewAdaptive()
	p := newCrowd(l.Wrap(retrypolicy.NoRetry{}))
	p.Observe(outcome(1, true))
	now := time.Now()
	b.ReportAllocs()
	series := policytest.Series(p.Policy)
	for b.Loop() {
		now = now.Add(time.Second)
		sink = series.Admit(retrypolicy.Attempt{Now: now})
		series.Report(retrypolicy.VerdictSucceed, retrypolicy.Attempt{Now: now})
	}
}

var sink retrypolicy.Decision
