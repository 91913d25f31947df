package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// policies is the set of current retry policies. A value is immutable; SetRetryPolicy replaces it.
type policies struct {
	connection, message retrypolicy.Policy
	paced               retrypolicy.Policy // nil: the others, with delays of reconnect.MinDelay
	apart               bool               // the message policy was set on its own
}

// withConnection returns p with another connection policy. The message policy follows it unless it
// was set apart.
func (p policies) withConnection(to retrypolicy.Policy) policies {
	p.connection = to
	if !p.apart {
		p.message = to
	}
	return p
}

// withMessage returns p with another message policy; nil follows the connection policy.
func (p policies) withMessage(to retrypolicy.Policy) policies {
	p.message, p.apart = to, to != nil
	if !p.apart {
		p.message = p.connection
	}
	return p
}

// The optional interfaces of a policy are checked at the call site. So a program without such a
// policy links none of the code behind them.

func isGate(p retrypolicy.Policy) (retrypolicy.Gate, bool) {
	g, ok := p.(retrypolicy.Gate)
	return g, ok
}

func isObserver(p retrypolicy.Policy) (retrypolicy.Observer, bool) {
	o, ok := p.(retrypolicy.Observer)
	return o, ok
}

func isWithdrawer(p retrypolicy.Policy) (retrypolicy.Withdrawer, bool) {
	w, ok := p.(retrypolicy.Withdrawer)
	return w, ok
}

// decide asks the policy responsible for a, within the limits of package reconnect.
func (p *policies) decide(a retrypolicy.Attempt) retrypolicy.Decision {
	return reconnect.Decide(p.of(&a), p.paced != nil, &a)
}

// of returns the policy responsible for a.
func (p *policies) of(a *retrypolicy.Attempt) retrypolicy.Policy {
	return reconnect.Of(p.connection, p.message, p.paced, a)
}

// question is a failure put to a policy. It is kept so that it can be asked again, and its answer
// withdrawn.
type question struct {
	attempt retrypolicy.Attempt
	failure *transport.Error
	began   time.Time
	askedOf *policies
	pending retrypolicy.Decision // a granted retry that has not begun; zero: none
}

// withdraw tells the policy that a granted retry will not be made, because the policy may have
// charged for it.
func (q *question) withdraw(l *loop) {
	if q == nil || !q.pending.Retry {
		return
	}
	last := q.pending
	q.pending = retrypolicy.Decision{}
	if w, ok := isWithdrawer(q.askedOf.of(&q.attempt)); ok {
		a := q.attempt
		a.Last, a.Now = last, time.Now()
		l.withdrawFrom(w, a)
	}
}

// retriesEnded is the error when a policy or OutageLimit ended the retries after cause, with
// reason.
func retriesEnded(cause *transport.Error, reason retrypolicy.Reason, retries int) *transport.Error {
	return &transport.Error{
		Kind: transport.RetryExpired, Scope: cause.Scope, Op: cause.Op, Proto: cause.Proto, RetryAfter: cause.RetryAfter,
		Err: &retrypolicy.Error{Reason: reason, Retries: retries, Err: cause},
	}
}

// refusedTry is the error when a gate refuses a try. cause is the preceding failure, nil for a
// first try.
func refusedTry(scope transport.Scope, op transport.Op, d retrypolicy.Decision, retries int,
	cause error) *transport.Error {
	if d.Reason == retrypolicy.ReasonPolicy {
		d.Reason = retrypolicy.ReasonRejected
	}
	return &transport.Error{
		Kind: transport.RetryExpired, Scope: scope, Op: op, Err: &retrypolicy.Error{Reason: d.Reason, Retries: retries,
			Err: cause},
	}
}
