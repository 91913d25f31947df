package budget

import (
	"cmp"
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// ThrottleOptions configures a Throttle. The zero value is the SRE book's. The adaptive throttler
// of failsafe-go is {K: 1 / 0.9, Window: time.Minute, Ceiling: 0.9, CountEnded: true, Refusals:
// ^KindSet(0)}.
type ThrottleOptions struct {
	// K is the number of requests sent per accepted one before any is rejected: 1 or more, 1/s for a
	// success rate of s. Default: 2.
	K float64
	// Window is the time over which requests are counted. It must be longer than the longest attempt.
	// Default: two minutes.
	Window time.Duration
	// Ceiling is the highest probability of a rejection, so that enough requests pass to notice that
	// the service has recovered. Default: 1, no ceiling.
	Ceiling float64
	// MinRequests is the number of requests in the window below which none is rejected. Default: 0.
	MinRequests int
	// CountEnded counts a request when it ends, instead of at Admit. Set it for high concurrency:
	// otherwise an initial burst of unanswered requests looks like a service that accepts none.
	CountEnded bool
	// Refusals are the Kinds that mean that the service did not accept the request. Default:
	// Throttled, Unavailable, Network, Timeout. Any other answer counts as accepted. An attempt that
	// failed on this side does not count at all.
	Refusals retrypolicy.KindSet
}

// Throttle rejects attempts at random, first ones included. The fewer of the recent requests the
// service accepted, the more it rejects. With requests and accepts counted over Window, the
// probability is
//
//	max(0, (requests - K*accepts) / (requests + 1)), at most Ceiling
//
// A request counts even if it is rejected here, so the probability rises until the callers slow
// down. A rejected attempt ends its series with Rejected.
//
// Source: Site Reliability Engineering, chapter 21, "Handling Overload", client-side throttling.
type Throttle struct {
	state
	o    ThrottleOptions // with its defaults
	seen window          // marked: accepted
}

// NewThrottle returns a throttle.
func NewThrottle(o *ThrottleOptions) (*Throttle, error) {
	set := given(o)
	set.K, set.Window, set.Ceiling = cmp.Or(set.K, 2), cmp.Or(set.Window, 2*time.Minute), cmp.Or(set.Ceiling, 1)
	set.Refusals = cmp.Or(set.Refusals,
		retrypolicy.Kinds(transport.Throttled, transport.Unavailable, transport.Network, transport.Timeout))
	if err := kit.Check("ThrottleOptions.",
		kit.Bad(!(set.K >= 1 && set.K <= math.MaxInt32),
			"K is below 1; give 1 or more, it is the requests sent for each that is accepted"),
		kit.Bad(set.Window < shortestWindow, "Window is too short; give 20 ms or more"),
		kit.Bad(!(set.Ceiling > 0 && set.Ceiling <= 1),
			"Ceiling is out of range; give a probability above 0, at most 1"),
		kit.Bad(set.MinRequests < 0, "MinRequests is negative; give 0 or more requests")); err != nil {
		return nil, err
	}
	return &Throttle{o: set, seen: newWindow(set.Window)}, nil
}

// Wrap puts the throttle around p.
func (t *Throttle) Wrap(p retrypolicy.Policy) retrypolicy.Policy {
	return shared{t, t != nil, "Throttle", p}
}

// Probability returns the probability of a rejection at now, from 0 to below 1.
func (t *Throttle) Probability(now time.Time) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.advance(now)
	return t.probability()
}

// Counts returns the requests in the window at now, and the accepted ones, which can be more for a
// while.
func (t *Throttle) Counts(now time.Time) (requests, accepts int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.advance(now)
	return whole(t.seen.sum.all), whole(t.seen.sum.marked)
}

func (t *Throttle) probability() float64 {
	n := t.seen.sum
	if n.all < int64(t.o.MinRequests) {
		return 0
	}
	p := (float64(n.all) - t.o.K*float64(n.marked)) / (float64(n.all) + 1)
	return min(max(p, 0), t.o.Ceiling)
}

// admit counts a request and draws whether to admit it.
func (t *Throttle) admit(_ *ticket, a retrypolicy.Attempt) retrypolicy.Decision {
	t.seen.advance(a.Now)
	reject := kit.Unit(a.Rand) < t.probability()
	if !t.o.CountEnded {
		t.seen.add(tally{all: 1})
	}
	if reject {
		return stop(retrypolicy.ReasonRejected, 0)
	}
	return admitted
}

func (t *Throttle) undo(*ticket, retrypolicy.Attempt) {
	if !t.o.CountEnded {
		t.seen.takeBack(tally{all: 1})
	}
}

func (t *Throttle) report(_ *ticket, v retrypolicy.Verdict, a retrypolicy.Attempt) {
	if SaysNothing(v, a) {
		return
	}
	var seen tally
	if v == retrypolicy.VerdictSucceed || !t.o.Refusals.Has(a.Kind) && !kit.EndedByContext(a.Err) {
		seen.marked = 1
	}
	if t.o.CountEnded {
		seen.all = 1
	}
	t.seen.advance(a.Now)
	t.seen.add(seen)
}
