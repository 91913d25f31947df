// Package operr makes operation errors that several packages return in the same form.
package operr

import (
	"context"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/sizelimit"
	"github.com/hubline-iot/hubline/transport"
)

// Cancelled returns the error of operation op, which ended because ctx ended: Kind Cancelled, with
// ctx.Err, the cause of a context.WithCancelCause and state in its chain. state is the reason why
// op had not completed, such as transport.ErrOutcomeUnknown or the last connection failure; it may
// be nil.
func Cancelled(ctx context.Context, op transport.Op, scope transport.Scope, state error) *transport.Error {
	var causes list
	causes.add(ctx.Err())
	if cause := context.Cause(ctx); !errchain.Same(cause, ctx.Err()) {
		causes.add(cause)
	}
	causes.add(state)
	return &transport.Error{Kind: transport.Cancelled, Scope: scope, Op: op, Err: causes}
}

// TooLarge returns the error for a message of size bytes, of which at most limit are allowed.
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

// list joins errors on one line; errors.Join puts each on its own line.
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
