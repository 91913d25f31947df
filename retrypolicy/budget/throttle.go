package budget

import (
	"math"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/delay"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/retrypolicy/internal/wrap"
	"github.com/hubline-iot/hubline/transport"
)

// ThrottleOptions describe a Throttle. The zero value makes the one of the SRE book: K = 2 over two
// minutes.
//
// The adaptive throttler of failsafe-go is {K: 1 / 0.9, Window: time.Minute, Ceiling: 0.9, Ended:
// true, Refusals: ^KindSet(0)}.
type ThrottleOptions struct {
	// K is how many requests are sent for each that is accepted, before any is rejected: 1 or more.
	// The nearer to 1, the sooner it rejects. For a success rate of s give 1/s. Default: 2.
	K float64
	// Window is how far back requests are counted; longer than the longest attempt takes. Default: two
	// minutes.
	Window time.Duration
	// Ceiling is the greatest probability of a rejection, so that enough goes through to notice when
	// the service is well again. Default: 1, no ceiling.
	Ceiling float64
	// Least is how many requests there must be in the window before any is rejected. Default: 0.
	Least int
	// Ended counts a request when it has ended, instead of when it was asked for; so those that were
	// rejected here do not count, nor those in flight. Without it a burst of requests at the start, of
	// which none was answered yet, looks like a service that accepts none: set it where much is in
	// flight at a time.
	Ended bool
	// Refusals are the Kinds that say that the service did not take the request. Default: Throttled,
	// Unavailable, Network, Timeout. Whatever else came back was accepted: an answer, though perhaps
	// not the one hoped for. An attempt that its context ended was not, nor one that failed on this
	// side: given up, closed, marked by Permanent, Invalid.
	Refusals retrypolicy.KindSet
}

// Throttle rejects attempts, first ones included, by chance: the more, the fewer of the latest
// requests the service accepted. With requests and accepts counted over Window the probability is
//
//	max(0, (requests - K*accepts) / (requests + 1)), at most Ceiling
//
// A request counts when it is asked for, also if it is rejected here; so the probability goes up as
// long as the callers do not hold back. A rejected attempt ends its series with Rejected. Admit
// decides by Attempt.Rand. Safe for concurrent use.
//
// Source: Site Reliability Engineering, "Handling Overload", client-side throttling.
type Throttle struct {
	k        float64
	ceiling  float64
	least    int64
	ended    bool
	refusals retrypolicy.KindSet

	mu   sync.Mutex
	seen window // marked: accepted
}

// NewThrottle makes a throttle. o may be nil.
func NewThrottle(o *ThrottleOptions) (*Throttle, error) {
	var set ThrottleOptions
	if o != nil {
		set = *o
	}
	fallback(&set.K, 2)
	fallback(&set.Window, 2*time.Minute)
	fallback(&set.Ceiling, 1)
	fallback(&set.Refusals, retrypolicy.Kinds(transport.Throttled, transport.Unavailable, transport.Network,
		transport.Timeout))
	switch {
	case !(set.K >= 1 && set.K <= math.MaxInt32):
		return nil, failure.Invalid("ThrottleOptions.K is below 1; give 1 or more, it is the requests sent for each that " +
			"is accepted")
	case set.Window < shortestWindow:
		return nil, failure.Invalid("ThrottleOptions.Window is too short; give 20 ms or more")
	case !(set.Ceiling > 0 && set.Ceiling <= 1):
		return nil, failure.Invalid("ThrottleOptions.Ceiling is out of range; give a probability above 0, at most 1")
	case set.Least < 0:
		return nil, failure.Invalid("ThrottleOptions.Least is negative; give 0 or more requests")
	}
	return &Throttle{
		k: set.K, ceiling: set.Ceiling, least: int64(set.Least), ended: set.Ended, refusals: set.Refusals,
		seen: newWindow(set.Window),
	}, nil
}

// fallback gives what was left zero its default.
func fallback[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Wrap puts the throttle around p.
func (t *Throttle) Wrap(p retrypolicy.Policy) retrypolicy.Policy { return throttled{t, p} }

// Probability is that of a rejection at now, from 0 to below 1.
func (t *Throttle) Probability(now time.Time) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.advance(now)
	return t.probability()
}

// Counts returns the requests in the window at now, and those of them that were accepted. A request
// and its acceptance count when they happen; so there can be more acceptances for a while.
func (t *Throttle) Counts(now time.Time) (requests, accepts int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.advance(now)
	return whole(t.seen.sum.all), whole(t.seen.sum.marked)
}

func (t *Throttle) probability() float64 {
	n := t.seen.sum
	if n.all < t.least {
		return 0
	}
	p := (float64(n.all) - t.k*float64(n.marked)) / (float64(n.all) + 1)
	return min(max(p, 0), t.ceiling)
}

// ask counts a request and draws.
func (t *Throttle) ask(a retrypolicy.Attempt) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.advance(a.Now)
	reject := delay.Unit(a.Rand) < t.probability()
	if !t.ended {
		t.seen.add(tally{all: 1})
	}
	return !reject
}

// takeBack undoes ask, when the attempt does not begin for another reason.
func (t *Throttle) takeBack() {
	if t.ended {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.takeBack()
}

func (t *Throttle) learn(a retrypolicy.Attempt) {
	if wrap.SaysNothing(a) {
		return
	}
	var seen tally
	if a.Err == nil || !t.refusals.Has(a.Kind) && !failure.EndedByContext(a.Err) {
		seen.marked = wrap.Outcomes(a)
	}
	if t.ended {
		seen.all = wrap.Outcomes(a)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.seen.advance(a.Now)
	t.seen.add(seen)
}

type throttled struct {
	throttle *Throttle
	policy   retrypolicy.Policy
}

func (t throttled) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return t.policy.Decide(a) }

func (t throttled) Withdraw(a retrypolicy.Attempt) { retrypolicy.Withdraw(t.policy, a) }

func (t throttled) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	if !t.throttle.ask(a) {
		return wrap.Stop(retrypolicy.Rejected)
	}
	d := retrypolicy.Admit(t.policy, a)
	if !d.Retry || d.Delay > 0 {
		t.throttle.takeBack()
	}
	return d
}

func (t throttled) Observe(a retrypolicy.Attempt) {
	t.throttle.learn(a)
	retrypolicy.Observe(t.policy, a)
}

func (t throttled) Validate() error {
	if t.throttle == nil {
		return failure.Invalid("Throttle is nil; make one with NewThrottle")
	}
	return wrap.Within("the policy that Throttle.Wrap was given", t.policy)
}

func (t throttled) Inside() retrypolicy.Policy { return t.policy }
func (t throttled) Shared() any                { return t.throttle }
func (throttled) Charges() bool                { return false }
