package device

import (
	"errors"

	"github.com/hubline-iot/hubline/transport"
)

// ErrOutcomeUnknown is in the chain of an error about a message or a call when it had been handed
// to a connection and was not answered: the hub may have it. After a Send that ended with Timeout
// the message still belongs to the client, which goes on trying.
var ErrOutcomeUnknown = transport.ErrOutcomeUnknown

var (
	errClosed  = &transport.Error{Kind: transport.Closed, Op: transport.OpSend, Err: errors.New("Close was called")}
	errNotOpen = &transport.Error{Kind: transport.Closed, Op: transport.OpSend,
		Err: errors.New("the client was not opened; call Open or Start, or Enqueue to send later")}
	errFull     = &transport.Error{Kind: transport.Dropped, Op: transport.OpSend, Err: errors.New("the outbox is full")}
	errExpired  = &transport.Error{Kind: transport.Expired, Op: transport.OpSend}
	errReplaced = &transport.Error{Kind: transport.Closed, Op: transport.OpSend,
		Err: errors.New("the retry policy was replaced while the message was in flight")}
	errGoneWith = &transport.Error{Kind: transport.Network, Op: transport.OpSend,
		Err: errors.New("the connection was lost before the answer")}
	errNoAck       = errors.New("no acknowledgement in time")
	errNoGrant     = errors.New("the subscription was not answered within DialTimeout")
	errNoRenewal   = errors.New("the renewal was not answered within AckTimeout")
	errDialTimeout = errors.New("no connection within DialTimeout")
)

// gaveUp is the cause of an error that a caller's context or a time-out made: what ended the wait,
// and what stood in the way.
type gaveUp struct {
	ended error // a context's error, or what else ended it
	state error // ErrOutcomeUnknown, or the last failure of the connection; may be nil
}

func (g *gaveUp) Error() string {
	if g.state == nil {
		return g.ended.Error()
	}
	return g.ended.Error() + "; " + g.state.Error()
}

func (g *gaveUp) Unwrap() []error {
	if g.state == nil {
		return []error{g.ended}
	}
	return []error{g.ended, g.state}
}

// timedOut is the error of an operation whose caller gave up.
func timedOut(op transport.Op, scope transport.Scope, ended, state error) *transport.Error {
	return &transport.Error{Kind: transport.Timeout, Scope: scope, Op: op, Err: &gaveUp{ended, state}}
}

// ofConnection is err, which was about one operation, as the end of an attempt to connect.
func ofConnection(err error) error {
	e := transport.Find(err)
	if e == nil {
		return err
	}
	own := *e
	own.Scope = transport.Connection
	return &own
}
