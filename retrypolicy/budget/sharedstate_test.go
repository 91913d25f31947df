//go:build !tinygo

package budget_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/retrypolicy/compat"
	"github.com/hubline-iot/hubline/retrypolicy/internal/policytest"
	"github.com/hubline-iot/hubline/transport"
)

// sharedState has one of each policy with shared state around a back-off, with parameters drawn
// from rng.
type sharedState struct {
	throttle *budget.Throttle
	budget   *budget.RetryBudget
	crowd    *budget.ConcurrencyBudget
	ratio    *budget.RetryThrottle
	breaker  *budget.Breaker
	probes   int
	named    map[string]retrypolicy.Policy
}

func newSharedState(t testing.TB, rng *rand.Rand) *sharedState {
	t.Helper()
	pick := func(least, most float64) float64 { return least + rng.Float64()*(most-least) }
	length := func() time.Duration { return 20*time.Millisecond + time.Duration(rng.Int64()>>(1+rng.IntN(43))) }
	probes := 1 + rng.IntN(3)
	cooldown := time.Duration(1 + rng.Int64()>>(1+rng.IntN(63)))
	var window time.Duration
	var part float64
	if rng.IntN(2) == 0 {
		window, part = length(), rng.Float64()
	}
	wait := rng.IntN(2) == 0
	s := &sharedState{
		probes: probes,
		throttle: policytest.Must(budget.NewThrottle(&budget.ThrottleOptions{
			K: pick(1, 10), Window: length(), Ceiling: pick(0.01, 1), MinRequests: rng.IntN(5),
			CountEnded: rng.IntN(2) == 0,
			Refusals:   retrypolicy.KindSet(rng.Uint32()),
		})),
		budget: policytest.Must(budget.NewRetryBudget(&budget.RetryBudgetOptions{Share: pick(1e-6, 100),
			Window:     length(),
			MinRetries: rng.IntN(5)})),
		crowd: policytest.Must(budget.NewConcurrencyBudget(&budget.ConcurrencyBudgetOptions{Share: pick(1e-6,
			1), MinRetries: rng.IntN(5)})),
		ratio: policytest.Must(budget.NewRetryThrottle(1+rng.IntN(1000), pick(0.001, 1000))),
		breaker: policytest.Must(budget.NewBreaker(&budget.BreakerOptions{
			Failures: rng.IntN(10), Window: window, Share: part,
			Kinds:    retrypolicy.KindSet(rng.Uint32() & rng.Uint32()),
			Cooldown: cooldown,
			Growth:   pick(1, 1e6),
			Probes:   probes, Successes: rng.IntN(4),
			Wait: wait,
		})),
	}
	curve := retrypolicy.Backoff{Base: time.Second, Max: time.Hour, Jitter: retrypolicy.JitterFull}
	g := compat.GRPC{
		Attempts: 2 + rng.IntN(10), Initial: 1 + time.Duration(rng.Int64()>>1>>rng.IntN(63)),
		Max: 1 + time.Duration(rng.Int64()>>1>>rng.IntN(63)), Multiplier: pick(1e-9, 1e9),
	}
	s.named = map[string]retrypolicy.Policy{
		"Throttle": s.throttle.Wrap(curve), "RetryBudget": s.budget.Wrap(curve),
		"ConcurrencyBudget": s.crowd.Wrap(curve),
		"RetryThrottle":     s.ratio.Wrap(curve),
		"Breaker":           s.breaker.Wrap(curve), "compat.GRPC": g,
		"all": s.breaker.Wrap(s.throttle.Wrap(s.crowd.Wrap(s.budget.Wrap(s.ratio.Wrap(g))))),
	}
	for name, p := range s.named {
		if err := retrypolicy.Validate(p); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return s
}

// check reports whether all readable values are consistent.
func (s *sharedState) check(now time.Time) string {
	n, accepts := s.throttle.Counts(now)
	requests, retries := s.budget.Counts(now)
	all, again := s.crowd.Counts()
	b := s.breaker.Status(now)
	p, tokens := s.throttle.Probability(now), s.ratio.Tokens()
	switch {
	case n < 0 || accepts < 0 || !(p >= 0 && p < 1):
		return "Throttle"
	case requests < 0 || retries < 0:
		return "RetryBudget"
	case all < 0 || again < 0 || again > all:
		return "ConcurrencyBudget"
	case !(tokens >= 0 && tokens <= 1000):
		return "RetryThrottle"
	case b.Failures < 0 || b.InFlight < 0 || b.Probes < 0 || b.Probes > min(b.InFlight, s.probes) || b.Cooldown < 0 ||
		b.Openings < 0:
		return "Breaker"
	case b.State == budget.BreakerOpen && b.Cooldown == 0:
		return "Breaker open without a cooldown"
	}
	return ""
}

// extremes are the numbers of retries where a shift or an addition could overflow.
var extremes = append([]int{math.MinInt32, -1, 0, 1, 2, 3, 4, 5}, policytest.Huge...)

// With any parameters, order of calls and clock: no panic, no negative delay, nothing outside its
// bounds.
func runSharedState(t testing.TB, seed uint64, steps int) {
	rng := rand.New(rand.NewPCG(seed, 7))
	s := newSharedState(t, rng)
	errs := []error{nil, transport.Network, transport.Throttled, transport.NotFound, context.Canceled,
		context.DeadlineExceeded,
		transport.Closed, transport.Invalid, errors.Join(transport.Timeout, context.DeadlineExceeded),
		retrypolicy.Permanent(transport.Network)}
	now := policytest.Epoch
	series := map[string][]retrypolicy.Series{}
	inFlight, n := map[string]*[3]bool{"Breaker": {}, "all": {}}, 0 // attempts that the breaker let in
	for name, p := range s.named {
		for range 3 {
			series[name] = append(series[name], policytest.Series(p))
		}
	}
	for range steps {
		switch rng.IntN(10) {
		case 0: // the clock jumps, also backwards
			now = now.Add(time.Duration(rng.Uint64()) >> rng.IntN(64))
		case 1: // an older clock reading
			now = now.Add(-time.Duration(rng.IntN(1000)))
		default:
			now = now.Add(time.Duration(rng.Int64N(int64(10 * time.Second))))
		}
		a := retrypolicy.Attempt{
			Now: now, Retry: extremes[rng.IntN(len(extremes))], Rand: rng.Uint64(),
			After: time.Duration(rng.Uint64()) >> rng.IntN(64),
		}
		if rng.IntN(2) == 0 {
			a.After = 0
		}
		a = policytest.As(a, errs[rng.IntN(len(errs))])
		for name, p := range s.named {
			which := rng.IntN(3)
			one := series[name][which]
			gated := inFlight[name]
			if gated != nil && gated[which] { // any step ends the attempt
				gated[which], n = false, n-1
			}
			switch rng.IntN(5) {
			case 0:
				if d := one.Decide(a); d.Delay < 0 || d.Retry && d.Reason != 0 {
					t.Fatalf("seed %d: %s: Decide(%+v) = %+v", seed, name, a, d)
				}
			case 1, 2:
				d := one.Admit(a)
				if d.Delay < 0 || d.Retry && d.Reason != 0 || !d.Retry && d.Reason == 0 {
					t.Fatalf("seed %d: %s: Admit(%+v) = %+v", seed, name, a, d)
				}
				if gated != nil && d.Retry && d.Delay == 0 {
					gated[which], n = true, n+1
					if s.breaker.Status(now).State == budget.BreakerOpen {
						t.Fatalf("seed %d: %s: Admit(%+v) let an attempt in, and the breaker is open", seed, name, a)
					}
				}
			case 3:
				one.Report(retrypolicy.VerdictAgain+retrypolicy.Verdict(rng.IntN(3)), a)
			case 4:
				one.End()
				series[name][which] = policytest.Series(p)
			}
			if b := s.breaker.Status(now); b.InFlight != n {
				t.Fatalf("seed %d: after %s and %+v: the breaker counts %d in flight, there are %d", seed, name, a, b.InFlight, n)
			}
			if fault := s.check(now); fault != "" {
				t.Fatalf("seed %d: after %s and %+v: %s makes no sense: %+v", seed, name, a, fault, s.breaker.Status(now))
			}
		}
	}
	for _, all := range series {
		for _, one := range all {
			one.End()
		}
	}
	all, retries := s.crowd.Counts()
	if b := s.breaker.Status(now); all != 0 || retries != 0 || b.InFlight != 0 || b.Probes != 0 {
		t.Fatalf("seed %d: at the end %d in flight, %d retries, %+v", seed, all, retries, b)
	}
}

func TestSharedStateMakesSenseWhateverHappens(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seeds from %d", seed)
	for i := range uint64(400) {
		runSharedState(t, seed+i, 100)
	}
}

func FuzzSharedState(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint8(100))
	}
	f.Fuzz(func(t *testing.T, seed uint64, steps uint8) { runSharedState(t, seed, int(steps)) })
}

func FuzzPushback(f *testing.F) {
	for _, s := range []string{"", "0", "1500", "-1", "2147483648", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, header string) {
		if d := compat.GRPCPushback(header); d < -1 || d > math.MaxInt32*time.Millisecond || d == 0 != (header == "") {
			t.Errorf("%q: %d", header, d)
		}
	})
}

// A breaker that opens stays open for exactly its cooldown, in whatever order the callers' clock
// readings arrive.
func TestBreakerWaitIsNeverLongerThanItsCooldown(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	b := policytest.Must(budget.NewBreaker(&budget.BreakerOptions{Failures: 2, Cooldown: time.Minute, Growth: 2,
		Wait: true}))
	p := newCrowd(b.Wrap(always))
	now := policytest.Epoch
	for i := range 20_000 {
		now = now.Add(time.Duration(rng.Int64N(int64(3*time.Minute))) - time.Minute)
		a := retrypolicy.Attempt{Now: now}
		switch rng.IntN(3) {
		case 0:
			p.Observe(policytest.As(a, transport.Network))
		case 1:
			p.Observe(policytest.As(a, nil))
		default:
			if d := p.Admit(a); !d.Retry || d.Delay < 0 || d.Delay > 10*time.Minute {
				t.Fatalf("seed %d, step %d: %+v", seed, i, d)
			}
		}
	}
}

func TestSharedStateAllocatesNothing(t *testing.T) {
	s := newSharedState(t, rand.New(rand.NewPCG(1, 1)))
	lost := &transport.Error{Kind: transport.Throttled}
	s.named["Quota"] = policytest.Must(budget.NewQuota(&budget.QuotaOptions{Late: true,
		Bucket: policytest.Must(budget.NewTokenBucket(500, 0, 1))})).Wrap(policytest.Again(0))
	s.named["Adaptive"] = budget.NewAdaptive().Wrap(policytest.Again(0))
	for name, p := range s.named {
		now, x := policytest.Epoch, 0
		series := policytest.Series(p)
		allocs := testing.AllocsPerRun(500, func() {
			x++
			now = now.Add(time.Second)
			a := retrypolicy.Attempt{Now: now, Retry: x & 3, Rand: uint64(x) << 50}
			sink = series.Admit(a)
			if x%3 > 0 {
				a.Err, a.Kind = lost, transport.Throttled
			}
			report(series, a)
			sink = series.Decide(a)
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations for a try", name, allocs)
		}
	}
	if allocs := testing.AllocsPerRun(500, func() { sinkWait = compat.GRPCPushback("1500") }); allocs != 0 {
		t.Errorf("Pushback: %v allocations", allocs)
	}
}

var sinkWait time.Duration

func BenchmarkSharedState(b *testing.B) {
	s := newSharedState(b, rand.New(rand.NewPCG(1, 1)))
	for _, name := range []string{"Throttle", "RetryBudget", "ConcurrencyBudget", "RetryThrottle", "Breaker", "all"} {
		p := s.named[name]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			now := policytest.Epoch
			for b.Loop() {
				now = now.Add(time.Millisecond)
				a := retrypolicy.Attempt{Now: now, Rand: math.MaxUint64}
				series := retrypolicy.BeginSeries(p, retrypolicy.Start{})
				sink = series.Admit(a)
				series.Report(retrypolicy.VerdictSucceed, a)
				series.End()
			}
		})
	}
}
