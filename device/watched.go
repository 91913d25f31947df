package device

import (
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/linked"
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
	linked.SetResults()
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
	w := q.first
	if w != nil {
		q.first, w.next = w.next, nil
		if q.first == nil {
			q.last = nil
		}
	}
	q.mu.Unlock()
	return w
}

// add appends w. It does not block: the lock is held for a few instructions.
func (q *Results) add(w *Watched) {
	q.mu.Lock()
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.mu.Unlock()
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
