package budget

import (
	"cmp"
	"math"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// RetryBudgetOptions configures a RetryBudget. The zero value is the one of the SRE book: 10 %.
type RetryBudgetOptions struct {
	// Share is the number of retries allowed per request, above 0, in steps of a millionth.
	// Default: 0.1.
	Share float64
	// Window is the time over which requests and retries are counted. Default: two minutes.
	Window time.Duration
	// MinRetries is the number of retries in the window that are always allowed. It helps a client
	// with few requests: with Share alone it can retry once, and then not until ten requests later.
	// Default: 0.
	MinRetries int
}

// RetryBudget limits the retries of all operations that share it to a Share of their requests. A
// retry is allowed while
//
//	retries < Share * requests, or retries < MinRetries
//
// in Window, as counted before it. So a failing service gets at most 1 + Share times the load of a
// healthy one (and one retry more). A request is a first attempt that the gates admit; it is
// counted when it begins and never refused. A retry is counted when it is decided on, and uncounted
// if it does not begin. A refused retry ends its series with OutOfQuota and carries its delay. Safe
// for concurrent use.
//
// Source: Site Reliability Engineering, chapter 21, "Handling Overload", per-client retry budget.
type RetryBudget struct {
	passive
	share share
	least int64

	mu   sync.Mutex
	seen window // all: requests, marked: retries
}

// NewRetryBudget returns a budget. o may be nil. Errors are of Kind Invalid.
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

// Wrap puts the budget around p: p decides first, and the budget counts only a retry that p wants.
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

// charge counts a retry.
func (b *RetryBudget) charge(t *ticket, a retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.advance(a.Now)
	n := b.seen.sum
	if n.marked >= b.least && !b.share.below(n.marked, n.all) {
		return retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfQuota, Delay: d.Delay}
	}
	b.seen.add(tally{marked: 1})
	t.pending, t.at = true, a.Now
	return d
}

// release uncounts a retry that has not begun, unless it has already left the window.
func (b *RetryBudget) release(t *ticket) {
	if !t.pending {
		return
	}
	t.pending = false
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.advance(t.at)
	b.seen.takeBack(tally{marked: 1})
}

// admit counts a request.
func (b *RetryBudget) admit(_ *ticket, a retrypolicy.Attempt) retrypolicy.Decision {
	if a.Retry <= 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen.advance(a.Now)
		b.seen.add(tally{all: 1})
	}
	return admitted
}

func (b *RetryBudget) undo(_ *ticket, a retrypolicy.Attempt) {
	if a.Retry <= 0 {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen.takeBack(tally{all: 1})
	}
}

// ConcurrencyBudgetOptions configures a ConcurrencyBudget. The zero value is the one of
// failsafe-go.
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
// It decides right before the retry, after its delay, and ends the series with OutOfQuota. It keeps
// no history, so it needs no clock. Safe for concurrent use. It is exact, where failsafe-go may
// admit a few more.
//
// Source: the retry budget of failsafe-go.
type ConcurrencyBudget struct {
	share share
	least int64

	mu      sync.Mutex
	calls   int64 // active ones
	retries int64 // in flight
}

// NewConcurrencyBudget returns a budget. o may be nil. Errors are of Kind Invalid.
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

func (b *ConcurrencyBudget) admit(t *ticket, a retrypolicy.Attempt) retrypolicy.Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(t)
	if a.Retry > 0 {
		if b.retries >= b.least && b.share.above(b.retries, b.calls+b.retries) {
			return stop(retrypolicy.ReasonOutOfQuota)
		}
		b.retries++
		t.inFlight = true
	}
	b.enter(t)
	return admitted
}

// enter counts the call. mu held.
func (b *ConcurrencyBudget) enter(t *ticket) {
	if !t.active {
		t.active = true
		b.calls++
	}
}

// leave ends the retry in flight. mu held.
func (b *ConcurrencyBudget) leave(t *ticket) {
	if t.inFlight {
		t.inFlight = false
		b.retries--
	}
}

func (b *ConcurrencyBudget) undo(t *ticket, _ retrypolicy.Attempt) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(t)
}

func (b *ConcurrencyBudget) report(t *ticket, _ retrypolicy.Verdict, _ retrypolicy.Attempt) {
	b.release(t)
}

// charge counts a call that waits for its retry.
func (b *ConcurrencyBudget) charge(t *ticket, _ retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enter(t)
	return d
}

// release ends the call.
func (b *ConcurrencyBudget) release(t *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.leave(t)
	if t.active {
		t.active = false
		b.calls--
	}
}
