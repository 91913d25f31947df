package amqp

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
)

// telemetry sends messages over one link, which is opened when the first message comes and again
// when there is something to send after it was lost. Its goroutine sends; the link's reaper
// collects the answers. A link without credit holds up only what waits for it. Both goroutines end
// when there was nothing to do for a while.
type telemetry struct {
	s    *session
	wake chan struct{} // capacity 1: there is something in the queue
	turn chan struct{} // capacity 1: the window has room for the transfer that waits

	// Of the goroutine, and of the next one when it has ended.
	link  *outLink // nil: none
	gone  error    // it was lost while there was no goroutine
	alone int      // so many messages are to be sent one at a time: one of them ended a link
	guard bool     // the latest one was sent so
	// patience ends when limit fires, which runs while a transfer waits for credit. Both are used
	// again for as long as that does not happen.
	patience context.Context
	limit    *time.Timer
	calls    atomic.Uint32 // begun and ended; odd while one is under way

	// What is sent next, to be used again: messages as they were handed over; a batch with those that
	// are encoded, or a message alone. See plain.
	items []transport.Item
	batch amqp.Message
	parts [][]byte
	buf   []byte
	plain plain

	// Guarded by session.mu.
	running bool // there is a goroutine
	queue   []transport.Item
	single  []transport.Item // to be sent in a transfer each, before the queue
}

// putLocked takes messages in. session.mu is held.
func (t *telemetry) putLocked(batch []transport.Item) {
	t.queue = append(t.queue, batch...)
	if !t.running && len(t.queue) > 0 {
		t.startLocked()
	}
}

// startLocked starts the goroutine. session.mu is held.
func (t *telemetry) startLocked() {
	t.running = true
	if t.link != nil {
		t.s.conn.idle.remove(t.link)
	}
	t.s.goLocked(t.run)
}

// lostIdle has the loss of a link dealt with that nobody used. What uses it meanwhile notices by
// itself.
func (t *telemetry) lostIdle(l *outLink, err error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if !t.running && t.link == l {
		t.gone = err
		t.startLocked()
	}
}

// run is the goroutine.
func (t *telemetry) run() {
	s := t.s
	idle := newLinger()
	defer idle.Stop()
	if t.gone != nil {
		t.forgetIdle()
	}
	for s.ctx.Err() == nil {
		var over chan struct{}
		if t.link != nil {
			over = t.link.ended
		}
		select {
		case <-t.wake:
			idle.used = true
			t.sendQueued()
		case <-idle.C:
			if idle.expired() && t.retire() {
				return
			}
		case <-over:
			t.lose(t.link.err, nil, 0)
		case <-s.ctx.Done():
		}
	}
	if t.link != nil {
		t.link.stop()
		s.conn.window.leave(t)
	}
}

// forgetIdle gives up a link that was lost while nobody used it: the next message opens another
// one, and nobody needs to know. What the hub says about the device ends the session.
func (t *telemetry) forgetIdle() {
	s := t.s
	cause := t.gone
	t.gone = nil
	t.drop(cause)
	if s.ctx.Err() != nil || s.conn.gone() {
		return
	}
	if why := lossOf(s.conn.explain(cause)); aboutOf(why) == identity {
		s.fail(why)
	}
}

// retire gives the goroutine up, unless something waits or is in flight. It reports whether it did.
func (t *telemetry) retire() bool {
	s := t.s
	if t.link != nil && t.link.inFlight() > 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(t.queue)+len(t.single) > 0 {
		return false
	}
	t.items, t.parts, t.buf, t.queue = nil, nil, nil, nil
	t.running = false
	if t.link != nil && !s.over {
		s.conn.idle.add(t.link)
	}
	return true
}

// sendQueued sends all that waits, or reports it.
func (t *telemetry) sendQueued() {
	s := t.s
	for s.ctx.Err() == nil {
		s.mu.Lock()
		t.alone += len(t.single)
		t.items = append(append(t.items[:0], t.single...), t.queue...)
		clear(t.queue)
		t.single, t.queue = nil, t.queue[:0]
		s.mu.Unlock()
		if len(t.items) == 0 {
			return
		}
		for items := t.items; len(items) > 0; {
			n, ok := t.sendSome(items)
			if !ok {
				return
			}
			items = items[n:]
		}
		clear(t.items)
	}
}

// sendSome sends the first messages, as many as go into one transfer, and returns how many. False:
// the link, or more, was lost; that was reported.
func (t *telemetry) sendSome(items []transport.Item) (int, bool) {
	s := t.s
	if limit := s.info.MaxSize; limit > 0 {
		if size := items[0].Msg.Size(); size > limit {
			e := transport.TooLargeError(size, limit)
			e.Proto = proto
			s.cfg.Sink.Done(items[0].Tag, e)
			return 1, true
		}
	}
	for {
		if !t.ready() {
			return 0, false
		}
		select {
		case <-t.link.ended: // it ended while the first message waited to be alone
			t.lose(t.link.err, items, 0)
			return 0, false
		default:
		}
		m, n, size := t.encode(items)
		f := newTransfer(items[:n])
		if !s.conn.window.take(&f.exchange, t, size, s.ctx.Done()) {
			f.free()
			return 0, false
		}
		s.conn.stream.waitRoom(s.ctx)
		fresh := t.link.sends == 0
		err := t.transfer(m, f)
		switch {
		case err == nil:
			t.guard = t.alone > 0
			t.alone = max(0, t.alone-n)
			return n, true
		case s.ctx.Err() != nil || s.conn.gone():
			return 0, false
		case localRefusal(err) && n > 1:
			t.alone = max(t.alone, n) // one of them it is about
		case localRefusal(err):
			t.report(items[:n], failed(transport.OpSend, localKind(err), err))
			return n, true
		case err != errNoCredit && !fresh && t.link.inFlight() == 0 && ended(err) != nil:
			// It was lost while nothing was under way: a new one, and nobody needs to know.
			t.drop(err)
		default:
			t.lose(err, items, n)
			return 0, false
		}
	}
}

// ready opens the link if there is none, and waits until a message that must be alone is alone.
// False: there is no link, which was reported.
func (t *telemetry) ready() bool {
	s := t.s
	for {
		if t.link == nil {
			var err error
			if t.link, err = s.openOutLink(); err != nil {
				if s.ctx.Err() == nil && !s.conn.gone() {
					s.fail(lossOf(err))
				}
				return false
			}
		}
		if t.alone == 0 && !t.guard || t.link.inFlight() == 0 {
			return true
		}
		select {
		case <-t.link.settled:
		case <-t.link.ended:
			return true // sending will say so
		case <-s.ctx.Done():
			return false
		}
	}
}

// errNoCredit: the hub gives no credit.
var errNoCredit = errors.New("the hub gave the link no credit in time")

// errNoWindow: the hub does not let the session send.
var errNoWindow = errors.New("the hub did not open the window of the session in time")

// transfer sends m, with a limit for the wait for credit.
func (t *telemetry) transfer(m *amqp.Message, f *transfer) error {
	if t.patience == nil || t.patience.Err() != nil {
		ctx, cancel := context.WithCancelCause(t.s.ctx)
		t.patience, t.limit = ctx, time.AfterFunc(t.s.opt.CreditTimeout, func() { t.hurry(cancel) })
	} else {
		t.limit.Reset(t.s.opt.CreditTimeout)
	}
	ctx := t.patience
	t.calls.Add(1)
	err := t.link.send(ctx, m, f)
	t.calls.Add(1)
	t.limit.Stop()
	if err != nil && context.Cause(ctx) == errNoCredit {
		return errNoCredit
	}
	return err
}

// hurry ends the wait for credit. When it is the window of the session that is closed, the library
// takes no notice, so what is above must end.
func (t *telemetry) hurry(cancel context.CancelCauseFunc) {
	call := t.calls.Load()
	cancel(errNoCredit)
	time.AfterFunc(strayLimit, func() {
		if call%2 == 1 && t.calls.Load() == call {
			t.s.fail(lost(transport.Timeout, errNoWindow))
		}
	})
}

// batchBytes is how large a batch becomes at most, unless its first message is larger. More in one
// transfer saves nothing, and would wait longer for its answer.
const batchBytes = 24 << 10

// keepBatch is the largest buffer for a batch that is kept for the next one.
const keepBatch = batchBytes + batchBytes/2

// sectionHead is what the head of a message's section in a batch takes at most.
const sectionHead = 8

// encode makes a transfer of the first items, for the link that there is. It returns their number
// and about how many bytes they take.
func (t *telemetry) encode(items []transport.Item) (*amqp.Message, int, int) {
	if t.s.opt.Batch == 1 {
		m := items[0].Msg
		return t.plain.fill(m, t.s.opt.Addresses == nil), 1, m.Size()
	}
	most := t.s.opt.Batch
	if t.alone > 0 {
		most = 1
	}
	if cap(t.buf) > keepBatch {
		t.buf = nil
	}
	t.buf, t.parts = t.buf[:0], t.parts[:0]
	limit := t.s.conn.window.batch()
	if peer := t.link.sender.MaxMessageSize(); peer > 0 && peer < uint64(limit) {
		limit = int(peer)
	}
	var ends [maxBatch]int
	n, size := 0, 0
	for n < len(items) && n < most {
		size += items[n].Msg.Size()
		begin := len(t.buf)
		if n > 0 && size > limit {
			break
		}
		t.buf = appendMessage(t.buf, items[n].Msg)
		if n > 0 && len(t.buf)+(n+1)*sectionHead > limit {
			t.buf = t.buf[:begin]
			break
		}
		ends[n] = len(t.buf)
		n++
	}
	begin := 0
	for _, end := range ends[:n] {
		t.parts = append(t.parts, t.buf[begin:end])
		begin = end
	}
	t.batch.Data = t.parts
	return &t.batch, n, len(t.buf) + n*sectionHead
}

// localRefusal reports whether the library would not send a message. It is then certain that the
// hub has not got it, and the link lives.
func localRefusal(err error) bool {
	if e, ok := err.(*amqp.Error); ok { // not within the error of a link
		return e.Condition == amqp.ErrCondMessageSizeExceeded
	}
	return ended(err) == nil && !isConn(err) && err != errNoCredit
}

func localKind(err error) transport.Kind {
	if _, ok := err.(*amqp.Error); ok {
		return transport.TooLarge
	}
	return transport.Invalid
}

// report tells the same about each message.
func (t *telemetry) report(items []transport.Item, err error) {
	for i := range items {
		t.s.cfg.Sink.Done(items[i].Tag, err)
	}
}

// drop gives the link up.
func (t *telemetry) drop(cause error) []transport.Item {
	l := t.link
	t.link = nil
	items := l.abandon(cause != errNoCredit)
	switch {
	case isSession(cause):
		t.s.forget(l.session)
	case cause == errNoCredit: // it lives, and half a message may be on it
		ctx, cancel := context.WithTimeout(t.s.ctx, t.s.opt.OperationTimeout)
		if l.sender.Close(ctx) != nil && t.s.ctx.Err() == nil {
			t.s.forget(l.session)
		}
		cancel()
	}
	return items
}

// lose deals with the loss of the link. What was in flight, what was to be sent next and what waits
// behind it are reported, in this order, so that they are sent again in this order. What the hub
// says about the device ends the session instead. The first tried messages of next were with the
// library when the link ended. The hub may have them, and may have ended the link for one of them.
func (t *telemetry) lose(cause error, next []transport.Item, tried int) {
	s := t.s
	flying := t.drop(cause)
	if s.ctx.Err() != nil || s.conn.gone() {
		return
	}
	why, what := lost(transport.Throttled, cause), moment
	if cause != errNoCredit {
		why = lossOf(s.conn.explain(cause))
		what = aboutOf(why)
	}
	if what == identity {
		s.fail(why)
		return
	}
	e := failed(transport.OpSend, why.Kind, why.Err)
	s.mu.Lock()
	waiting := append(t.single, t.queue...)
	t.single, t.queue = nil, nil
	s.mu.Unlock()
	suspects := len(flying) + tried
	handed := append(flying, next...)
	if what == content {
		if suspects == 1 {
			t.report(handed[:1], e)
			handed = handed[1:]
		}
		t.alone = max(t.alone, suspects)
	}
	if what != moment || e.Kind == transport.Network {
		e = failed(transport.OpSend, transport.Unavailable, e.Err)
	}
	t.report(handed, transport.OutcomeUnknown(e))
	t.report(waiting, e)
}

// outcome reports what became of a transfer. It is called by the reaper while that still counts as
// in flight, so there is a goroutine to wake.
func (t *telemetry) outcome(items []transport.Item, state amqp.DeliveryState) {
	s := t.s
	e, what := verdict(state)
	switch {
	case e == nil: // not report: a nil *Error is no nil error
		for i := range items {
			s.cfg.Sink.Done(items[i].Tag, nil)
		}
	case what == identity:
		s.fail(lost(e.Kind, e.Err))
	case what != moment && len(items) > 1:
		// Which of them it is about is found out by sending each alone.
		s.mu.Lock()
		if !s.over {
			t.single = append(t.single, items...)
		}
		s.mu.Unlock()
		poke(t.wake)
	default:
		t.report(items, e)
	}
}

// verdict is what an outcome means for the message, nil if the hub took it, and what it is about. A
// condition that is not listed is about the message.
func verdict(state amqp.DeliveryState) (*transport.Error, about) {
	switch state := state.(type) {
	case nil, *amqp.StateAccepted:
		return nil, moment
	case *amqp.StateRejected:
		c := conditionOf("message", state.Error)
		row, listed := conditionTable[c.Condition]
		if !listed {
			row.about = content
		}
		return failed(transport.OpSend, row.kind, c), row.about
	case *amqp.StateReleased:
		return failed(transport.OpSend, transport.Unavailable, errReleased), moment
	case *amqp.StateModified:
		if state.UndeliverableHere {
			return failed(transport.OpSend, transport.Forbidden, errUndeliverable), content
		}
		return failed(transport.OpSend, transport.Unavailable, errModified), moment
	}
	return failed(transport.OpSend, transport.Unavailable, errNoOutcome), moment
}

var (
	errReleased      = errors.New("the hub released the message: it wants it later")
	errModified      = errors.New("the hub could not deliver the message this time (modified)")
	errUndeliverable = errors.New("the hub cannot deliver the message on this link (modified, undeliverable here)")
	errNoOutcome     = errors.New("the hub settled the message without an outcome")
)
