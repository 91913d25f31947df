package device

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// Receipt carries the result of one message from Enqueue to the caller of Wait. Its zero value is
// ready. After Wait has returned the result, the Receipt may be used for another message, so a
// program that reuses a few of them allocates nothing per message. A Receipt must not be copied.
type Receipt struct {
	state  atomic.Uint32
	waited atomic.Bool   // a goroutine is in Wait
	err    error         // the result; written before state says receiptDone
	signal chan struct{} // capacity 1; made by the first wait, so a polled receipt has none

	watched *Watched // nil, or told the result as well (Results)
}

const (
	receiptIdle    uint32 = iota
	receiptBusy           // it has a message
	receiptAwaited        // and a goroutine that waits on signal
	receiptDone           // the result is there
)

// Wait returns the result, as Send does: nil, or an *transport.Error. When ctx ends first it
// returns Cancelled, and Wait may be called again. An available result takes precedence, so with a
// done context Wait polls. Wait may be called as soon as Enqueue has returned. It returns Invalid
// at once on a Receipt without a message, and while another goroutine waits, which gets the result.
func (r *Receipt) Wait(ctx context.Context) error {
	if !r.waited.CompareAndSwap(false, true) {
		return errReceiptIdle
	}
	err := r.result(ctx)
	r.waited.Store(false)
	return err
}

func (r *Receipt) result(ctx context.Context) error {
	if r.state.Load() == receiptIdle {
		return errReceiptIdle
	}
	if !r.Ready() && !r.await(ctx, nil) {
		return operr.Cancelled(ctx, transport.OpSend, transport.ScopeOperation, nil)
	}
	err := r.err
	r.free()
	return err
}

// Ready reports whether the result is available, so that Wait returns at once. It polls without
// allocating. It may be called by the goroutine that calls Wait.
func (r *Receipt) Ready() bool { return r.state.Load() == receiptDone }

// take claims r for a message.
func (r *Receipt) take() bool { return r.state.CompareAndSwap(receiptIdle, receiptBusy) }

// free makes r ready for another message.
func (r *Receipt) free() {
	r.err = nil
	r.state.Store(receiptIdle)
}

// await waits for the result. It returns false if ctx or late ended first. One goroutine at a time
// may call it.
func (r *Receipt) await(ctx context.Context, late <-chan struct{}) bool {
	if r.signal == nil {
		r.signal = make(chan struct{}, 1)
	}
	if !r.state.CompareAndSwap(receiptBusy, receiptAwaited) {
		return true // set was faster
	}
	select {
	case <-r.signal:
		return true
	case <-ctx.Done():
	case <-late:
	}
	if r.state.CompareAndSwap(receiptAwaited, receiptBusy) {
		return false
	}
	<-r.signal // set has begun
	return true
}

// set delivers the result; it does not block.
func (r *Receipt) set(err error) {
	r.tell(err)
	r.err = err
	if r.state.Swap(receiptDone) == receiptAwaited {
		r.signal <- struct{}{}
	}
}

var (
	errReceiptIdle = &transport.Error{Kind: transport.Invalid, Op: transport.OpSend,
		Err: errors.New("the receipt has no message to wait for, or another goroutine waits")}
	errReceiptBusy = &transport.Error{Kind: transport.Invalid, Op: transport.OpSend,
		Err: errors.New("the receipt still has a message whose result was not waited for")}
)

// Results collects the results of watched messages as they come, whoever waits for their receipts.
// It is for code that observes messages, such as traces; a program that only wants its own results
// waits for receipts. The client calls no code of the watcher and never waits for it: a result is
// a list entry that the watcher brings. Results keeps the entry until Next returns it and has no
// limit of its own, so a watcher limits how many messages it watches. Make one with NewResults.
// Clients may share it, and its methods are safe for concurrent use.
type Results struct {
	bell chan struct{} // capacity 1; carries no data

	mu          sync.Mutex
	first, last *Watched
}

// Watched is one watched message. Watch takes it until Next returns it; then it may be reused.
type Watched struct {
	// Value is the watcher's own; Results does not use it.
	Value any
	// Err is the result, as Receipt.Wait returns it, and At when it was known. Set by Next.
	Err error
	At  time.Time

	to   *Results
	next *Watched
}

// NewResults returns an empty Results.
func NewResults() *Results {
	return &Results{bell: make(chan struct{}, 1)}
}

// Watch makes Next return w when the next message that r is given to has its result. Call it right
// before Enqueue, and Unwatch when Enqueue returned an error. It returns false, and does nothing,
// if r has a message.
func (q *Results) Watch(r *Receipt, w *Watched) bool {
	if r.state.Load() != receiptIdle {
		return false
	}
	w.Err, w.At, w.to, w.next = nil, time.Time{}, q, nil
	r.watched = w
	return true
}

// Unwatch undoes a Watch of a receipt whose message was not accepted.
func (q *Results) Unwatch(r *Receipt) { r.watched = nil }

// Ready returns a channel on which a value arrives when there are results. One value may stand for
// several results, or for none: call Next until it returns nil.
func (q *Results) Ready() <-chan struct{} { return q.bell }

// Next returns a watched message with its result, in the order of the results; nil if there is
// none.
func (q *Results) Next() *Watched {
	q.mu.Lock()
	defer q.mu.Unlock()
	w := q.first
	if w != nil {
		q.first, w.next = w.next, nil
		if q.first == nil {
			q.last = nil
		}
	}
	return w
}

// add appends w. It does not block: the lock is held for a few instructions.
func (q *Results) add(w *Watched) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	select {
	case q.bell <- struct{}{}:
	default:
	}
}

// tell passes the result to the watcher, if there is one.
func (r *Receipt) tell(err error) {
	if w := r.watched; w != nil {
		r.watched = nil
		w.Err, w.At = err, time.Now()
		w.to.add(w)
	}
}

// call is the reusable state of one Send.
type call struct {
	receipt Receipt
	alarm   *alarm // nil until it is needed
}
