package fleet

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/transport"
)

// outcome is how an attempt, a message or a connection ended.
type outcome uint8

const (
	accepted outcome = iota
	registered
	acknowledged

	refused         // the network refused the attempt
	silent          // the network gave no answer to it
	unavailable     // the hub was down
	dropped         // the front end's queue was full
	late            // the hub's answer came after DialTimeout or AckTimeout
	connectRefused  // over the limit of connects
	registerRefused // over the limit of registrations
	messageRefused  // over the limit of messages
	lost            // a fault ended the connection
	tokenExpired    // the hub ended the connection at the end of its token

	outcomes // number of outcomes
)

// failure is a failed outcome as the device sees it, with the filter's rule for it.
type failure struct {
	err     *transport.Error
	rule    errfilter.Rule
	bounded bool // reconnect.Policies.Decide may lengthen the policy's delay beyond LeastDelay
}

// failures returns the errors of the outcomes for a hub.
func failures(h *Hub, p *Provisioning) [outcomes]failure {
	var all [outcomes]failure
	for _, f := range [...]struct {
		outcome outcome
		kind    transport.Kind
		scope   transport.Scope
		op      transport.Op
		after   time.Duration
		text    string
	}{
		{refused, transport.Network, transport.ScopeConnection, transport.OpDial, 0, "connection refused"},
		{silent, transport.Timeout, transport.ScopeConnection, transport.OpDial, 0, "no answer"},
		{unavailable, transport.Unavailable, transport.ScopeConnection, transport.OpDial, 0, "server unavailable"},
		{dropped, transport.Timeout, transport.ScopeConnection, transport.OpDial, 0, "no answer: the front end is full"},
		{late, transport.Timeout, transport.ScopeConnection, transport.OpDial, 0, "the answer came too late"},
		{connectRefused, h.ConnectKind, transport.ScopeConnection, transport.OpDial, h.RetryAfter, "too many connects"},
		{registerRefused, transport.Throttled, transport.ScopeConnection, transport.OpDial, p.RetryAfter,
			"too many registrations"},
		{messageRefused, h.MessageKind, transport.ScopeConnection, transport.OpRun, h.RetryAfter, "too many messages"},
		{lost, transport.Network, transport.ScopeConnection, transport.OpRun, 0, "connection lost"},
		{tokenExpired, transport.Network, transport.ScopeConnection, transport.OpRun, 0, "token expired"},
	} {
		if f.outcome == messageRefused && f.kind != transport.Network {
			f.scope, f.op = transport.ScopeOperation, transport.OpSend
		}
		err := &transport.Error{Kind: f.kind, Scope: f.scope, Op: f.op, RetryAfter: f.after, Err: errors.New(f.text)}
		all[f.outcome] = failure{err: err, rule: errfilter.Of(err), bounded: f.after > 0 || reconnect.IsSlow(f.kind)}
	}
	return all
}
