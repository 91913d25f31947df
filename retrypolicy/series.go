package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
)

// Stateful is a Policy that remembers something from one attempt to the next, or shares a budget
// with other operations. Begin is called when an operation begins. The caller then asks the Series
// and not the policy, whose own Decide has no memory. Begin returns nil if there is nothing to
// remember: the caller asks the policy itself.
//
// A struct that embeds a Policy has its Decide and not its Begin, so it disables a budget inside.
// Validate detects that only if the struct has Unwrap.
type Stateful interface {
	Policy
	Begin(s Start) Series
}

// Series is the memory of a policy for one operation; of a device client that is a message, a twin
// call, or connecting until a connection lasts (device.Options.RetryPolicy). It is the retry token
// of the smithy documents, which Begin acquires, Decide refreshes (scheduleRetry), Report returns
// after a success (notifySuccess), and End otherwise (notifyFailure). The order of calls is
//
//	for {
//		Admit, until it returns Retry without Delay
//		the attempt itself
//		Report how it ended: Succeed, Fail, or Again if it may be repeated
//		after Again: Decide
//	}
//	End, in any case
//
// The caller calls one method at a time. Several series of a policy run concurrently. A series may
// begin in the middle of an outage: after SetRetryPolicy during a wait the device client ends the
// old one, and its first call of the new one is Decide, with the number that the count has reached.
type Series interface {
	// Decide says whether and when the failed attempt is repeated, as Policy does.
	Policy
	// Admit says whether the next attempt may begin, the first included. Retry without a Delay
	// admits it, with a Delay asks the caller to wait that long and to call Admit again (see the
	// function Admit), and Retry false refuses it.
	Admit(a Attempt) Decision
	// Report tells how an admitted attempt ended. a.Err is nil or what led to the verdict.
	// VerdictAgain is a failure that may pass. VerdictFail is one that no retry mends: an answer of a
	// service that works, or an end on this side (Permanent, Kind Closed). So by default
	// budget.Breaker counts VerdictAgain as a failure and an answer as a success; after an end on this
	// side it only gives back the place of its probe. Do calls only End after a panic, and after an
	// attempt that returned the error or the cause of the context that ended; another error after that
	// end is reported.
	Report(v Verdict, a Attempt)
	// End ends the series. It gives back what the series still holds: the price of a retry that did
	// not begin, the place of an attempt whose end was not reported.
	End()
}

// Start is what a series begins with. A policy around another one passes it on.
type Start struct {
	// Key names the target of the operation (a host, a tenant, a device), for budget.PerKey.
	Key string
	// Outer lists the budgets of package budget around the policy, so that each acts once; nil at
	// first. A breaker or quota of your own cannot join it and must not be nested in itself.
	Outer *kit.Link
}

// BeginSeries returns the series of p, nil if p has nothing to remember.
func BeginSeries(p Policy, s Start) Series {
	if stateful, ok := p.(Stateful); ok {
		return stateful.Begin(s)
	}
	return nil
}

// Inner returns the series of p for a series around it. It is never nil: for a policy without
// memory it admits every attempt and forwards Decide.
func Inner(p Policy, s Start) Series { return orPlain(BeginSeries(p, s), p) }

// Admit asks s whether an attempt may begin, for a caller that must not spin: an attempt that s has
// delayed before (held) is delayed by at least a millisecond. It sets held for the next call.
func Admit(s Series, a Attempt, held *bool) Decision {
	d := s.Admit(a)
	again := *held
	if *held = d.Retry && d.Delay > 0; *held && again {
		d.Delay = max(d.Delay, leastDelay)
	}
	return d
}

// leastDelay is the shortest delay of an attempt that was delayed before, and of an Operation from
// its second retry on.
const leastDelay = time.Millisecond

// orPlain returns s, or for nil a series that only forwards Decide to p.
func orPlain(s Series, p Policy) Series {
	if s != nil {
		return s
	}
	return struct {
		Policy
		Free
	}{Policy: p}
}

// Free has the methods of a Series that admits every attempt and holds nothing. The series of a
// curve with memory embeds it and adds Decide.
type Free struct{}

// Admit admits the attempt.
func (Free) Admit(Attempt) Decision { return Decision{Retry: true} }

// Report does nothing.
func (Free) Report(Verdict, Attempt) {}

// End does nothing.
func (Free) End() {}

// Around begins a series of inner, the policy inside wrapper, which has no memory of its own. In
// the returned series decide decides for wrapper, with the series of inner in the place of inner;
// all else is the inner one's. Around returns nil if inner has nothing to remember.
func Around[W any](
	wrapper W, inner Policy, start Start, decide func(wrapper W, inner Policy, a Attempt) Decision,
) Series {
	series := BeginSeries(inner, start)
	if series == nil {
		return nil
	}
	return &around[W]{series, wrapper, decide}
}

type around[W any] struct {
	Series
	wrapper W
	decide  func(W, Policy, Attempt) Decision
}

func (s *around[W]) Decide(a Attempt) Decision { return s.decide(s.wrapper, s.Series, a) }
