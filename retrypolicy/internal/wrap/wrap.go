// Package wrap has the common part of policies with a budget, outside package retrypolicy.
package wrap

import (
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// Policy is a policy around another one that shares Budget, a pointer.
type Policy[Budget any] struct {
	Inner  retrypolicy.Policy
	Budget *Budget
	Names  *Names
	// NewSeries returns a new series.
	NewSeries func(*Budget) Series
}

// Names are for errors.
type Names struct{ Type, Constructor string }

// Series is a series of a Policy; it embeds a Base.
type Series interface {
	retrypolicy.Series
	base() *Base
}

// Base is the common part of a series. Its methods forward to the inner policy, or its series.
type Base struct {
	policy retrypolicy.Policy // the series, if there is one
	series retrypolicy.Series // nil: the policy has no memory
	link   kit.Link
}

func (b *Base) base() *Base { return b }

// Decide asks the inner policy.
func (b *Base) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return b.policy.Decide(a) }

// Admit asks the inner policy.
func (b *Base) Admit(a retrypolicy.Attempt) retrypolicy.Decision {
	if b.series == nil {
		return retrypolicy.Decision{Retry: true}
	}
	return b.series.Admit(a)
}

// Report reports to the inner policy.
func (b *Base) Report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	if b.series != nil {
		b.series.Report(v, a)
	}
}

// End ends the inner policy's series.
func (b *Base) End() {
	if b.series != nil {
		b.series.End()
	}
}

// Decide is the inner policy, without the budget.
func (p Policy[B]) Decide(a retrypolicy.Attempt) retrypolicy.Decision { return p.Inner.Decide(a) }

// Begin begins a series. A budget that is around the policy already acts there.
func (p Policy[B]) Begin(start retrypolicy.Start) retrypolicy.Series {
	if start.Outer.Contains(p.Budget) {
		return retrypolicy.BeginSeries(p.Inner, start)
	}
	s := p.NewSeries(p.Budget)
	b := s.base()
	start.Outer = b.link.Add(p.Budget, start.Outer)
	b.policy = p.Inner
	if b.series = retrypolicy.BeginSeries(p.Inner, start); b.series != nil {
		b.policy = b.series
	}
	return s
}

// Validate checks the inner policy, and that the constructor made the budget.
func (p Policy[B]) Validate() error {
	if p.Budget == nil {
		return kit.Invalid(p.Names.Type + " is nil; make one with " + p.Names.Constructor)
	}
	if p.Inner == nil { // joins strings only here: Do validates its policy in each call
		return kit.Invalid("the policy given to " + p.Names.Type + ".Wrap is nil; give a policy, NoRetry{} for none")
	}
	return retrypolicy.Validate(p.Inner)
}

// Begins reports whether d lets the attempt begin at once.
func Begins(d retrypolicy.Decision) bool { return d.Retry && d.Delay <= 0 }

// Stop returns a decision that stops, for reason.
func Stop(reason retrypolicy.Reason) retrypolicy.Decision {
	return retrypolicy.Decision{Reason: reason}
}

// SaysNothing reports whether the failure a, which is final or not, gives no information about the
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
