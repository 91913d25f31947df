package device

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

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

// timedOut is the error of an operation that one of the client's own limits ended. state says what
// stood in the way; it may be nil.
func timedOut(op transport.Op, scope transport.Scope, limit, state error) *transport.Error {
	return &transport.Error{Kind: transport.Timeout, Scope: scope, Op: op, Err: operr.With(limit, state)}
}

// gaveUp is the error of an operation that the caller's context ended, or else limit.
func gaveUp(ctx context.Context, op transport.Op, limit, state error) *transport.Error {
	if ctx.Err() != nil {
		return operr.Cancelled(ctx, op, transport.Operation, state)
	}
	return timedOut(op, transport.Operation, limit, state)
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
