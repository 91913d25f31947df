package budget

import (
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// shared is a policy around another one that shares Budget, a pointer.
type shared[Budget any] struct {
	Inner  retrypolicy.Policy
	Budget *Budget
	Names  *names
	// NewSeries returns a new series.
	NewSeries func(*Budget) sharedSeries
}

// names are for errors.
type names struct{ Type, Constructor string }

// sharedSeries is a series of a shared policy; it embeds a base.
type sharedSeries interface {
	retrypolicy.Series
	common() *base
}

// base is the common part of a series. Its methods forward to the inner policy, or its series.
type base struct {
	policy retrypolicy.Policy // the series, if there is one
	series retrypolicy.Series // nil: the policy has no memory
	link   kit.Link
}

func (b *base) common() *base { return b }

// Decide asks the inner policy.
func (b *base) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return b.policy.Decide(a) }

// Admit asks the inner policy.
func (b *base) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	if b.series == nil {
		return retrypolicy.Decision{Retry: true}
	}
	return b.series.Admit(a)
}

// Report reports to the inner policy.
func (b *base) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	if b.series != nil {
		b.series.Report(v, a)
	}
}

// End ends the inner policy's series.
func (b *base) End() {
	if b.series != nil {
		b.series.End()
	}
}

// Decide is the inner policy, without the budget.
func (p shared[B]) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return p.Inner.Decide(a) }

// Begin begins a series. A budget that is around the policy already acts there.
func (p shared[B]) Begin(start retrypolicy.Start) retrypolicy.Series {
	if start.Outer.Contains(p.Budget) {
		return retrypolicy.BeginSeries(p.Inner, start)
	}
	s := p.NewSeries(p.Budget)
	b := s.common()
	start.Outer = b.link.Add(p.Budget, start.Outer)
	b.policy = p.Inner
	if b.series = retrypolicy.BeginSeries(p.Inner, start); b.series != nil {
		b.policy = b.series
	}
	return s
}

// Validate checks the inner policy, and that the constructor made the budget.
func (p shared[B]) Validate() error {
	if p.Budget == nil {
		return kit.Invalid(p.Names.Type + " is nil; make one with " + p.Names.Constructor)
	}
	if p.Inner == nil { // joins strings only here: Do validates its policy in each call
		return kit.Invalid("the policy given to " + p.Names.Type + ".Wrap is nil; give a policy, NoRetry{} for none")
	}
	return retrypolicy.Validate(p.Inner)
}

// begins reports whether d lets the attempt begin at once.
func begins(d retrypolicy.Decision) bool { return d.Retry && d.Delay <= 0 }

// stop returns a decision that stops, for reason.
func stop(reason retrypolicy.Reason) retrypolicy.Decision {
	return retrypolicy.Decision{Reason: reason}
}

// saysNothing reports whether the failure a, which is final or not, gives no information about the
// service:
//
//   - The caller cancelled the attempt, or the client was closed.
//   - The failure arose on this side: from the operation's own context, from Permanent, or from
//     invalid input.
//
// An answer with an HTTP status is always information about the service.
//
// A deadline that passed while the service was expected to answer is information too: it arrives as
// a retryable failure.
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
