package budget

import (
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
	share share
	least int64

	mu   sync.Mutex
	seen window // all: requests, marked: retries
}

// NewRetryBudget returns a budget. o may be nil.
func NewRetryBudget(o *RetryBudgetOptions) (*RetryBudget, error) {
	var set RetryBudgetOptions
	if o != nil {
		set = *o
	}
	fallback(&set.Share, 0.1)
	fallback(&set.Window, 2*time.Minute)
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
	return shared[RetryBudget]{Inner: p, Budget: b, Names: &retryBudgetNames, NewSeries: newRetryBudgetSeries}
}

var retryBudgetNames = names{Type: "RetryBudget", Constructor: "NewRetryBudget"}

// Counts returns the requests and the retries in the window at now.
func (b *RetryBudget) Counts(now time.Time) (requests, retries int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.advance(now)
	return whole(b.seen.sum.all), whole(b.seen.sum.marked)
}

func (b *RetryBudget) request(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.advance(now)
	b.seen.add(tally{all: 1})
}

func (b *RetryBudget) retry(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.advance(now)
	n := b.seen.sum
	if n.marked >= b.least && !b.share.below(n.marked, n.all) {
		return false
	}
	b.seen.add(tally{marked: 1})
	return true
}

func (b *RetryBudget) takeBack(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen.advance(now)
	b.seen.unmark()
}

// retryBudgetSeries is a series under a RetryBudget.
type retryBudgetSeries struct {
	base
	budget  *RetryBudget
	pending bool      // a counted retry has not begun
	at      time.Time // when it was counted
}

func newRetryBudgetSeries(b *RetryBudget) sharedSeries { return &retryBudgetSeries{budget: b} }

// Decide counts a retry.
func (s *retryBudgetSeries) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	s.release()
	d := s.base.Decide(a)
	if !d.Retry {
		return d
	}
	if !s.budget.retry(a.Now) {
		return retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfQuota, Delay: d.Delay}
	}
	s.pending, s.at = true, a.Now
	return d
}

// release uncounts a retry that has not begun, unless it has already left the window.
func (s *retryBudgetSeries) release() {
	if s.pending {
		s.pending = false
		s.budget.takeBack(s.at)
	}
}

// Admit counts a request.
func (s *retryBudgetSeries) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	d := s.base.Admit(a)
	if !begins(d) {
		return d
	}
	s.pending = false
	if a.Retry <= 0 {
		s.budget.request(a.Now)
	}
	return d
}

func (s *retryBudgetSeries) End() {
	s.release()
	s.base.End()
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
// is active while its attempt is in flight or it waits for a retry. A retry is refused when, as
// counted before it,
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
	all     int64 // attempts in flight
	retries int64 // those of them that are retries
	queued  int64 // retries that were decided on and have not begun
}

// NewConcurrencyBudget returns a budget. o may be nil.
func NewConcurrencyBudget(o *ConcurrencyBudgetOptions) (*ConcurrencyBudget, error) {
	var set ConcurrencyBudgetOptions
	if o != nil {
		set = *o
	}
	fallback(&set.Share, 0.2)
	fallback(&set.MinRetries, 3)
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
	return shared[ConcurrencyBudget]{Inner: p, Budget: b, Names: &concurrencyNames, NewSeries: newConcurrencySeries}
}

var concurrencyNames = names{Type: "ConcurrencyBudget", Constructor: "NewConcurrencyBudget"}

// InFlight returns the number of attempts in flight, and of retries among them.
func (b *ConcurrencyBudget) InFlight() (all, retries int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return int(b.all), int(b.retries)
}

// enter admits an attempt. queued marks a retry that the budget counts as pending.
func (b *ConcurrencyBudget) enter(retry, queued bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if retry {
		// A call whose retry is in flight counts in addition to that retry.
		if b.retries >= b.least && b.share.above(b.retries, b.all+b.retries+b.queued) {
			return false
		}
		b.retries++
	}
	if queued {
		b.queued--
	}
	b.all++
	return true
}

// leave ends an attempt.
func (b *ConcurrencyBudget) leave(retry bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all--
	if retry {
		b.retries--
	}
}

// queue adds n to the count of pending retries.
func (b *ConcurrencyBudget) queue(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queued += n
}

// concurrencySeries is a series under a ConcurrencyBudget.
type concurrencySeries struct {
	base
	budget   *ConcurrencyBudget
	pending  bool // a retry was decided on and has not begun
	inFlight bool
	retry    bool // what is in flight is a retry
}

func newConcurrencySeries(b *ConcurrencyBudget) sharedSeries { return &concurrencySeries{budget: b} }

func (s *concurrencySeries) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	d := s.base.Decide(a)
	s.queue(d.Retry)
	return d
}

// queue counts a pending retry, or uncounts it.
func (s *concurrencySeries) queue(pending bool) {
	switch {
	case pending && !s.pending:
		s.budget.queue(1)
	case !pending && s.pending:
		s.budget.queue(-1)
	}
	s.pending = pending
}

func (s *concurrencySeries) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	s.leave()
	retry := a.Retry > 0
	if !s.budget.enter(retry, s.pending) {
		return stop(retrypolicy.ReasonOutOfQuota)
	}
	pending := s.pending
	s.inFlight, s.retry, s.pending = true, retry, false
	d := s.base.Admit(a)
	if !begins(d) {
		s.leave()
		s.queue(pending)
	}
	return d
}

// leave ends the attempt in flight.
func (s *concurrencySeries) leave() {
	if s.inFlight {
		s.inFlight = false
		s.budget.leave(s.retry)
	}
}

func (s *concurrencySeries) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	s.leave()
	s.base.Report(v, a)
}

func (s *concurrencySeries) End() {
	s.leave()
	s.queue(false)
	s.base.End()
}
