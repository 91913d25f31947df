package device

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

var (
	errGaveUp = &transport.Error{Kind: transport.Timeout, Op: transport.OpSend,
		Err: errors.New("Open gave up before the client was connected; open it again")}
	errClosed  = &transport.Error{Kind: transport.Closed, Op: transport.OpSend, Err: errors.New("Close was called")}
	errNotOpen = &transport.Error{Kind: transport.Closed, Op: transport.OpSend,
		Err: errors.New("the client was not opened; call Open or Start, or Enqueue to send later")}
	errFull     = &transport.Error{Kind: transport.Dropped, Op: transport.OpSend, Err: errors.New("the queue is full")}
	errExpired  = &transport.Error{Kind: transport.Expired, Op: transport.OpSend}
	errGoneWith = &transport.Error{Kind: transport.Network, Op: transport.OpSend,
		Err: errors.New("the connection was lost before the answer")}
	errNoAck       = errors.New("no acknowledgement within AckTimeout")
	errSendTimeout = errors.New("no acknowledgement within OperationTimeout")
	errNoRoom      = errors.New("no room in the queue within OperationTimeout")
	errNoGrant     = errors.New("the subscription was not answered within DialTimeout")
	errNoRenewal   = errors.New("the renewal was not answered within AckTimeout")
	errDialTimeout = errors.New("no connection within DialTimeout")
)

// timedOut is the error of an operation that exceeded a limit of the client. state is the
// underlying trouble; it may be nil.
func timedOut(op transport.Op, scope transport.Scope, limit, state error) *transport.Error {
	return &transport.Error{Kind: transport.Timeout, Scope: scope, Op: op, Err: operr.With(limit, state)}
}

// gaveUp is the error of an operation ended by the caller's context, or otherwise by limit.
func gaveUp(ctx context.Context, op transport.Op, limit, state error) *transport.Error {
	if ctx.Err() != nil {
		return operr.Cancelled(ctx, op, transport.ScopeOperation, state)
	}
	return timedOut(op, transport.ScopeOperation, limit, state)
}

// ofConnection returns err, the error of one operation, as the failure of an attempt to connect.
func ofConnection(err error) error {
	e := transport.Find(err)
	if e == nil {
		return err
	}
	own := *e
	own.Scope = transport.ScopeConnection
	return &own
}

// ofTransport returns err as a *transport.Error. An error of another type counts as the loss of the
// connection.
func ofTransport(err error) *transport.Error {
	if failure := transport.Find(err); failure != nil {
		return failure
	}
	return &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection, Op: transport.OpRun, Err: err}
}
