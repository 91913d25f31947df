package device

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// Receipt carries the result of one message from Enqueue to the caller of Wait. Its zero value is
// ready. After Wait has returned the result, the Receipt may be used for another message, so a
// program that reuses a few of them allocates nothing per message. A Receipt must not be copied.
type Receipt struct {
	result chan error // capacity 1; made at first use, before state says receiptBusy
	state  atomic.Uint32
}

const (
	receiptIdle uint32 = iota
	receiptClaimed
	receiptBusy // from Enqueue to the end of Wait
)

// Wait returns the result: nil when the service acknowledged the message, else an *transport.Error.
// When ctx ends first it returns Cancelled, and Wait may be called again. An available result takes
// precedence, so with a done context Wait polls. Wait may be called as soon as Enqueue has
// returned, by one goroutine at a time. On a Receipt without a message it returns Invalid.
func (r *Receipt) Wait(ctx context.Context) error {
	if r.state.Load() != receiptBusy {
		return errReceiptIdle
	}
	var err error
	select {
	case err = <-r.result:
	default:
		select {
		case err = <-r.result:
		case <-ctx.Done():
			return operr.Cancelled(ctx, transport.OpSend, transport.Operation, nil)
		}
	}
	r.state.Store(receiptIdle)
	return err
}

// Ready reports whether the result is available, so that Wait returns at once. It polls without
// allocating. It may be called by the goroutine that calls Wait.
func (r *Receipt) Ready() bool { return r.state.Load() == receiptBusy && len(r.result) > 0 }

// take claims r for a message.
func (r *Receipt) take() bool {
	if !r.state.CompareAndSwap(receiptIdle, receiptClaimed) {
		return false
	}
	if r.result == nil {
		r.result = make(chan error, 1)
	}
	r.state.Store(receiptBusy)
	return true
}

// set delivers the result; it does not block.
func (r *Receipt) set(err error) { r.result <- err }

var (
	errReceiptIdle = &transport.Error{Kind: transport.Invalid, Op: transport.OpSend,
		Err: errors.New("the receipt has no message to wait for")}
	errReceiptBusy = &transport.Error{Kind: transport.Invalid, Op: transport.OpSend,
		Err: errors.New("the receipt still has a message whose result was not waited for")}
)
