package budget

import (
	"cmp"
	"math"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// RetryBudgetOptions configures a RetryBudget. The zero value is the SRE book's.
type RetryBudgetOptions struct {
	// Share is the number of retries allowed per request, above 0, in steps of a millionth.
	// Default: 0.1.
	Share float64
	// Window is the time over which requests and retries are counted. Default: two minutes.
	Window time.Duration
	// MinRetries is the number of retries in the window that are always allowed, for a client with few
	// requests. Default: 0.
	MinRetries int
}

// RetryBudget limits the retries of all operations that share it to a Share of their requests. A
// retry is allowed while
//
//	retries < Share * requests, or retries < MinRetries
//
// in Window, as counted before it. A request is a first attempt that was admitted. A retry is
// counted when it is decided on, and uncounted if it does not begin. A refused retry ends its
// series with OutOfQuota and carries its delay.
//
// A plain limit of 50 retries a minute is
//
//	budget.RetryBudgetOptions{Share: 1e-6, Window: time.Minute, MinRetries: 50}
//
// Source: Site Reliability Engineering, chapter 21, "Handling Overload", per-client retry budget.
type RetryBudget struct {
	state
	share share
	least int64
	seen  window // all: requests, marked: retries
}

// NewRetryBudget returns a budget.
func NewRetryBudget(o *RetryBudgetOptions) (*RetryBudget, error) {
	set := given(o)
	set.Share, set.Window = cmp.Or(set.Share, 0.1), cmp.Or(set.Window, 2*time.Minute)
	if err := kit.Check("RetryBudgetOptions.",
		kit.Bad(!(set.Share >= 1e-6 && set.Share <= 100),
			"Share is out of range; give retries for each request, a millionth to 100"),
		kit.Bad(set.Window < shortestWindow, "Window is too short; give 20 ms or more"),
		kit.Bad(set.MinRetries < 0, "MinRetries is negative; give 0 or more retries")); err != nil {
		return nil, err
	}
	return &RetryBudget{share: shareOf(set.Share), least: int64(set.MinRetries), seen: newWindow(set.Window)}, nil
}

// Wrap puts the budget around p.
func (b *RetryBudget) Wrap(p retrypolicy.Policy) retrypolicy.Policy {
	return shared{b, b != nil, "RetryBudget", p}
}

// Counts returns the requests and the retries in the window at now.
func (b *RetryBudget) Counts(now time.Time) (requests, retries int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.advance(now)
	return whole(b.seen.sum.all), whole(b.seen.sum.marked)
}

func (b *RetryBudget) charge(t *ticket, a retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision {
	b.seen.advance(a.Now)
	n := b.seen.sum
	if n.marked >= b.least && !b.share.below(n.marked, n.all) {
		return stop(retrypolicy.ReasonOutOfQuota, d.Delay)
	}
	b.seen.add(tally{marked: 1})
	t.pending, t.at = true, a.Now
	return d
}

// release uncounts a retry that has not begun, unless it has already left the window.
func (b *RetryBudget) release(t *ticket) {
	if t.pending {
		t.pending = false
		if b.seen.holds(t.at) {
			b.seen.takeBack(tally{marked: 1})
		}
	}
}

func (b *RetryBudget) admit(_ *ticket, a retrypolicy.Attempt) retrypolicy.Decision {
	if a.Retry <= 0 {
		b.seen.advance(a.Now)
		b.seen.add(tally{all: 1})
	}
	return admitted
}

func (b *RetryBudget) undo(_ *ticket, a retrypolicy.Attempt) {
	if a.Retry <= 0 {
		b.seen.takeBack(tally{all: 1})
	}
}

// ConcurrencyBudgetOptions configures a ConcurrencyBudget. The zero value is failsafe-go's.
type ConcurrencyBudgetOptions struct {
	// Share is the highest share of retries in flight, relative to the active calls plus these
	// retries, above 0 and at most 1, in steps of a millionth. Default: 0.2.
	Share float64
	// MinRetries is the number of retries in flight that are always allowed. Default: 3.
	MinRetries int
}

// ConcurrencyBudget limits the number of retries in flight, as a share of the active calls. A call
// is active while an attempt is in flight or it waits for one. A retry is refused when, as counted
// before it,
//
//	retries in flight >= MinRetries  and  retries in flight > Share * (calls + retries in flight)
//
// It decides right before the retry, after its delay, and ends the series with OutOfQuota.
//
// Source: the retry budget of failsafe-go, which may admit a few more.
type ConcurrencyBudget struct {
	state
	share   share
	least   int64
	calls   int64 // active ones
	retries int64 // in flight
}

// NewConcurrencyBudget returns a budget.
func NewConcurrencyBudget(o *ConcurrencyBudgetOptions) (*ConcurrencyBudget, error) {
	set := given(o)
	set.Share, set.MinRetries = cmp.Or(set.Share, 0.2), cmp.Or(set.MinRetries, 3)
	if err := kit.Check("ConcurrencyBudgetOptions.",
		kit.Bad(!(set.Share >= 1e-6 && set.Share <= 1), "Share is out of range; give a millionth to 1"),
		kit.Bad(set.MinRetries < 1 || set.MinRetries > math.MaxInt32,
			"MinRetries is out of range; give 1 or more retries")); err != nil {
		return nil, err
	}
	return &ConcurrencyBudget{share: shareOf(set.Share), least: int64(set.MinRetries)}, nil
}

// Wrap puts the budget around p.
func (b *ConcurrencyBudget) Wrap(p retrypolicy.Policy) retrypolicy.Policy {
	return shared{b, b != nil, "ConcurrencyBudget", p}
}

// Counts returns the number of active calls, and of retries in flight.
func (b *ConcurrencyBudget) Counts() (calls, retries int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int(b.calls), int(b.retries)
}

// hold gives t a place among the active calls, and among the retries in flight, or takes it away.
func (b *ConcurrencyBudget) hold(t *ticket, call, retry bool) {
	move(&t.active, call, &b.calls)
	move(&t.inFlight, retry, &b.retries)
}

func move(place *bool, to bool, count *int64) {
	switch {
	case to && !*place:
		*count++
	case *place && !to:
		*count--
	}
	*place = to
}

func (b *ConcurrencyBudget) admit(t *ticket, a retrypolicy.Attempt) retrypolicy.Decision {
	b.hold(t, t.active, false)
	if a.Retry > 0 && b.retries >= b.least && b.share.above(b.retries, b.calls+b.retries) {
		return stop(retrypolicy.ReasonOutOfQuota, 0)
	}
	b.hold(t, true, a.Retry > 0)
	return admitted
}

func (b *ConcurrencyBudget) undo(t *ticket, _ retrypolicy.Attempt) { b.hold(t, t.active, false) }

func (b *ConcurrencyBudget) report(t *ticket, _ retrypolicy.Verdict, _ retrypolicy.Attempt) {
	b.release(t)
}

// charge counts a call that waits for its retry.
func (b *ConcurrencyBudget) charge(t *ticket, _ retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision {
	b.hold(t, true, false)
	return d
}

func (b *ConcurrencyBudget) release(t *ticket) { b.hold(t, false, false) }
