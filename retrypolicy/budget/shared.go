package budget

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// limiter is a budget: the state that operations share. A series asks it at each step, and keeps
// what its operation holds of the budget in a ticket.
type limiter interface {
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

// ticket is what one operation holds of a budget. A budget uses the fields that it needs.
type ticket struct {
	pending  bool      // a retry was decided on and has not begun
	at       time.Time // when that was
	cost     int       // of the latest retry, while its outcome is open
	active   bool      // the operation counts as a call
	inFlight bool      // an attempt, or only a retry where first ones do not count
	probe    int64     // what is in flight is a probe of this epoch
}

// passive is embedded by budgets that have nothing to say at some of the steps.
type passive struct{}

func (passive) admit(*ticket, retrypolicy.Attempt) retrypolicy.Decision  { return admitted }
func (passive) undo(*ticket, retrypolicy.Attempt)                        {}
func (passive) report(*ticket, retrypolicy.Verdict, retrypolicy.Attempt) {}
func (passive) release(*ticket)                                          {}
func (passive) charge(_ *ticket, _ retrypolicy.Attempt, d retrypolicy.Decision) retrypolicy.Decision {
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

// Decide is the inner policy, without the budget.
func (p shared) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return p.inner.Decide(a) }

// Unwrap returns the inner policy.
func (p shared) Unwrap() retrypolicy.Policy { return p.inner }

// Begin begins a series. A budget that is around the policy already acts there.
func (p shared) Begin(start retrypolicy.Start) retrypolicy.Series {
	if start.Outer.Contains(p.budget) {
		return retrypolicy.BeginSeries(p.inner, start)
	}
	s := &series{budget: p.budget, policy: p.inner}
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
	if p.inner == nil { // joins strings only here: Do validates its policy in each call
		return kit.Invalid("the policy given to " + p.name + ".Wrap is nil; give a policy, NoRetry{} for none")
	}
	return retrypolicy.Validate(p.inner)
}

// series is an operation under a budget. The policy inside decides first, so that the budget
// charges only for a retry that is wanted, and admits last, because it may count attempts.
type series struct {
	ticket
	budget limiter
	policy retrypolicy.Policy // the one inside: its series, if there is one
	inner  retrypolicy.Series // nil: it has no memory
	link   kit.Link
}

func (s *series) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	s.budget.release(&s.ticket)
	d := s.policy.Decide(a)
	if !d.Retry {
		return d
	}
	return s.budget.charge(&s.ticket, a, d)
}

func (s *series) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	d := s.budget.admit(&s.ticket, a)
	if !begins(d) {
		return d
	}
	if s.inner != nil {
		if d = s.inner.Admit(a); !begins(d) {
			s.budget.undo(&s.ticket, a)
			return d
		}
	}
	s.pending = false
	return d
}

func (s *series) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	s.budget.report(&s.ticket, v, a)
	if s.inner != nil {
		s.inner.Report(v, a)
	}
}

func (s *series) End() {
	s.budget.release(&s.ticket)
	if s.inner != nil {
		s.inner.End()
	}
}

// begins reports whether d lets the attempt begin at once.
func begins(d retrypolicy.Decision) bool { return d.Retry && d.Delay <= 0 }

// stop returns a decision that stops, for reason.
func stop(reason retrypolicy.Reason) retrypolicy.Decision {
	return retrypolicy.Decision{Reason: reason}
}

// saysNothing reports whether an attempt gives no information about the service: the caller
// cancelled it, the client was closed, or the failure arose on this side (the operation's own
// context, Permanent, invalid input). An answer with an HTTP status is always information. So is a
// retryable failure: a deadline that passed while the service was expected to answer.
func saysNothing(v retrypolicy.Verdict, a retrypolicy.Attempt) bool {
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
