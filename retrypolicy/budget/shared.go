package budget

import (
	"sync"
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// limiter is a budget. A series asks it at each step, with its mutex held, and keeps what its
// operation holds of the budget in a ticket.
type limiter interface {
	mutex() *sync.Mutex
	// admit says whether an attempt may begin.
	admit(t *ticket, a retrypolicy.Attempt) retrypolicy.Decision
	// undo takes back admit: a policy inside does not let the attempt begin.
	undo(t *ticket, a retrypolicy.Attempt)
	// report learns how an attempt ended.
	report(t *ticket, v retrypolicy.Verdict, a retrypolicy.Attempt)
	// charge says whether the retry d, which the policy inside wants, is allowed.
	charge(t *ticket, a retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision
	// release gives back what t holds: an attempt in flight, a retry that has not begun.
	release(t *ticket)
}

// ticket is what one operation holds of a budget, which uses the fields that it needs.
type ticket struct {
	pending  bool      // a retry was decided on and has not begun
	at       time.Time // when that was
	cost     int       // of the latest retry, while its outcome is open
	active   bool      // the operation counts as a call
	inFlight bool      // an attempt, or only a retry (that was charged) where first ones do not count
	probe    int64     // the epoch in which the latest attempt began as a probe; 0: it was none
}

// state is embedded by every budget: its lock, and the steps at which it has nothing to say.
type state struct{ mu sync.Mutex }

func (s *state) mutex() *sync.Mutex                                     { return &s.mu }
func (*state) admit(*ticket, retrypolicy.Attempt) retrypolicy.Decision  { return admitted }
func (*state) undo(*ticket, retrypolicy.Attempt)                        {}
func (*state) report(*ticket, retrypolicy.Verdict, retrypolicy.Attempt) {}
func (*state) release(*ticket)                                          {}
func (*state) charge(_ *ticket, _ retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision {
	return d
}

var admitted = retrypolicy.Decision{Retry: true}

// shared is a policy with a budget around it.
type shared struct {
	budget limiter
	made   bool   // budget is not a nil pointer
	name   string // of the budget's type
	inner  retrypolicy.Policy
}

// Decide decides without the budget.
func (p shared) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return p.inner.Decide(a) }

// Unwrap returns the inner policy.
func (p shared) Unwrap() retrypolicy.Policy { return p.inner }

// Begin begins a series, without the budget if it is around the policy already.
func (p shared) Begin(start retrypolicy.Start) retrypolicy.Series {
	if start.Outer.Contains(p.budget) {
		return retrypolicy.BeginSeries(p.inner, start)
	}
	s := &series{budget: p.budget, mu: p.budget.mutex(), policy: p.inner}
	start.Outer = s.link.Add(p.budget, start.Outer)
	if s.inner = retrypolicy.BeginSeries(p.inner, start); s.inner != nil {
		s.policy = s.inner
	}
	return s
}

// Validate checks the inner policy, and that the constructor made the budget.
func (p shared) Validate() error {
	if !p.made {
		return kit.Invalid(p.name + " is nil; make one with New" + p.name)
	}
	if p.inner == nil {
		return kit.Invalid("the policy given to " + p.name + ".Wrap is nil; give a policy, NoRetry{} for none")
	}
	return retrypolicy.Validate(p.inner)
}

// series is an operation under a budget. The policy inside decides first and admits last, because
// it may count attempts. The budget's lock is not held while it does.
type series struct {
	ticket
	budget limiter
	mu     *sync.Mutex        // the budget's
	policy retrypolicy.Policy // the one inside: its series, if there is one
	inner  retrypolicy.Series // nil: it has no memory
	link   kit.Link
}

func (s *series) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	s.release()
	d := s.policy.Decide(a)
	if !d.Retry {
		return d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.budget.charge(&s.ticket, a, d)
}

func (s *series) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	s.mu.Lock()
	d := s.budget.admit(&s.ticket, a)
	s.mu.Unlock()
	if !begins(d) {
		return d
	}
	if s.inner != nil {
		if d = s.inner.Admit(a); !begins(d) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.budget.undo(&s.ticket, a)
			return d
		}
	}
	s.pending = false
	return d
}

func (s *series) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	s.mu.Lock()
	s.budget.report(&s.ticket, v, a)
	s.mu.Unlock()
	if s.inner != nil {
		s.inner.Report(v, a)
	}
}

func (s *series) End() {
	s.release()
	if s.inner != nil {
		s.inner.End()
	}
}

func (s *series) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget.release(&s.ticket)
}

// begins reports whether d lets the attempt begin at once.
func begins(d retrypolicy.Decision) bool { return d.Retry && d.Delay <= 0 }

// stop returns a decision that stops, for reason, with the delay that a polling caller keeps to.
func stop(reason retrypolicy.Reason, delay time.Duration) retrypolicy.Decision {
	return retrypolicy.Decision{Reason: reason, Delay: delay}
}

// SaysNothing reports whether the end of an attempt, as Series.Report gets it, gives no information
// about the service: it was cancelled, or the failure arose on this side (the operation's own
// context, Permanent, invalid input). Else an answer with an HTTP status is information, and so is
// a retryable failure: a deadline that passed while the service was expected to answer. The
// policies of this package ask it, and so may a breaker of your own.
func SaysNothing(v retrypolicy.Verdict, a retrypolicy.Attempt) bool {
	switch {
	case v == retrypolicy.VerdictSucceed:
		return false
	case a.Kind == transport.Closed || a.Kind == transport.Cancelled || kit.Cancelled(a.Err):
		return true
	case v == retrypolicy.VerdictAgain:
		return false
	case kit.EndedByContext(a.Err):
		return true
	}
	if _, answered := kit.Status(a.Err); answered {
		return false
	}
	return a.Kind == transport.Invalid || kit.IsPermanent(a.Err)
}

// given returns the options that a constructor got; nil are the zero ones.
func given[Options any](o *Options) (set Options) {
	if o != nil {
		set = *o
	}
	return set
}
