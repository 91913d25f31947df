package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// policies is the set of current retry policies. A value is immutable; SetRetryPolicy replaces it.
type policies struct {
	connection, message reconnect.Policies
	apart               bool // the message policy was set on its own
}

// withConnection returns p with another connection policy. The message policy follows it unless it
// was set apart.
func (p policies) withConnection(to retrypolicy.Policy) policies {
	p.connection.Policy = to
	if !p.apart {
		p.message = p.connection
	}
	return p
}

// withMessage returns p with another message policy; nil follows the connection policy.
func (p policies) withMessage(to retrypolicy.Policy) policies {
	if p.apart = to != nil; p.apart {
		p.message.Policy = to
	} else {
		p.message = p.connection
	}
	return p
}

// series is what the policies remember of one outage, message or call. Only the loop uses it. The
// zero series has not begun.
type series struct {
	by       *policies           // whose it is; nil: not begun, or ended
	of       *reconnect.Policies // the policies among them
	main     *reconnect.Series   // nil: they have no memory
	inFlight bool                // main admitted an attempt whose end was not reported
}

// question is a failure put to a policy. It is kept so that it can be asked again.
type question struct {
	attempt retrypolicy.Attempt
	failure *transport.Error
	began   time.Time
	paid    time.Duration // what counts toward the delay of a connection, see down
	askedOf *policies
}

// describe adds a failure to an Attempt.
func describe(a *retrypolicy.Attempt, failure *transport.Error) {
	a.Err, a.Kind, a.After = failure, failure.Kind, failure.RetryAfter
}

// retriesEnded is the error when a policy or OutageLimit ended the retries after cause, with
// reason.
func retriesEnded(cause *transport.Error, reason retrypolicy.Reason, retries int) *transport.Error {
	return &transport.Error{
		Kind: transport.RetryExpired, Scope: cause.Scope, Op: cause.Op, Proto: cause.Proto, RetryAfter: cause.RetryAfter,
		Err: &retrypolicy.Error{Reason: reason, Retries: retries, Err: cause},
	}
}

// refusedTry is the error when a policy refuses an attempt before it begins. cause is the preceding
// failure, nil for a first attempt.
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

// repeated lists the operations that the client repeats by itself when their outcome is unknown,
// because the connection ended or the answer timed out. Other operations fail, and the caller
// decides.
var repeated = [...]bool{
	transport.OpSend:    true, // at least once; consumers detect duplicates by message id
	transport.OpTwinGet: true, // changes nothing
	// The patch sets values, and later calls are applied after it. A patch with an expected version is
	// not repeated, because the first try may have used that version up.
	transport.OpTwinPatch: true,
	transport.OpSubscribe: true,  // by each new session
	transport.OpRenew:     false, // a new session has a new token
	transport.OpRespond:   false, // the hub has given up the call
	transport.OpSettle:    false, // the hub delivers the message again
	transport.OpPing:      false,
	transport.OpIssue:     false, // package dpscert repeats it
}

// repeats reports whether r is done again after an unknown outcome.
func repeats(r *transport.Request) bool {
	return repeated[r.Op] && !(r.Op == transport.OpTwinPatch && r.Version != 0)
}

// pause is the time in which nothing is sent because the service refused a message for now. It
// belongs to the loop and outlives sessions, so a new connection does not end it.
type pause struct {
	*question         // nil: no pause
	series    *series // of the oldest message refused
	tag       uint16  // that message
	seq       uint64
	until     time.Time // zero: no pause
}

func (p *pause) running() bool { return !p.until.IsZero() }

func (p *pause) end() { *p = pause{} }

// gate holds messages back for as long as the message policy has asked for.
type gate struct {
	until time.Time // zero: open
	by    *policies
}

func (g *gate) close(until time.Time, by *policies) { *g = gate{until, by} }

func (g *gate) open() { *g = gate{} }

// closed reports whether messages wait. Other policies than those that closed the gate open it.
func (g *gate) closed(now time.Time, current *policies) bool {
	if now.Before(g.until) && g.by == current {
		return true
	}
	g.open()
	return false
}
