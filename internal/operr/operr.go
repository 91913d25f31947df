// Package operr makes the errors of operations that several packages return in the same shape.
package operr

import (
	"context"

	"github.com/hubline-iot/hubline/internal/sizelimit"
	"github.com/hubline-iot/hubline/transport"
)

// Cancelled returns the error of operation op, which ended because ctx did: Kind Cancelled, with
// ctx.Err, the cause of a context.WithCancelCause and state in its chain. state says what stood in
// the way, such as transport.ErrOutcomeUnknown or the latest failure of the connection; it may be
// nil.
func Cancelled(ctx context.Context, op transport.Op, scope transport.Scope, state error) *transport.Error {
	var causes list
	causes.add(ctx.Err())
	if cause := context.Cause(ctx); cause != ctx.Err() {
		causes.add(cause)
	}
	causes.add(state)
	return &transport.Error{Kind: transport.Cancelled, Scope: scope, Op: op, Err: causes}
}

// TooLarge returns the error for a message of size bytes where limit is the most.
func TooLarge(size, limit int) *transport.Error {
	return &transport.Error{Kind: transport.TooLarge, Op: transport.OpSend, Err: sizelimit.Error(size, limit)}
}

// With returns an error with both errors in its chain. state may be nil.
func With(err, state error) error {
	if state == nil {
		return err
	}
	return list{err, state}
}

// list is several errors as one. errors.Join puts each on a line of its own.
type list []error

func (l *list) add(err error) {
	if err != nil {
		*l = append(*l, err)
	}
}

func (l list) Error() string {
	text := ""
	for i, err := range l {
		if i > 0 {
			text += "; "
		}
		text += err.Error()
	}
	return text
}

func (l list) Unwrap() []error { return l }
