package amqp

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/amqpconn"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// telemetry sends messages over one link. It is attached for the first message, and after a loss
// for the next one. Its goroutine sends; the link's reaper waits for the outcomes. Both end after a
// time without work.
type telemetry struct {
	s    *session
	wake chan struct{} // capacity 1: the queue is not empty
	turn chan struct{} // capacity 1: the window has room for the transfer that waits

	// Owned by the goroutine, and passed on to the next one.
	link      *outLink // nil: none
	idleLoss  error    // why the link was lost while there was no goroutine
	single    int      // messages to send one at a time, because one of them ended a link
	wasSingle bool     // the latest one was sent alone
	// credited ends when creditTimer fires, which runs while a transfer waits for credit. Both are
	// reused until the timer fires.
	credited    context.Context
	creditTimer *time.Timer
	sends       atomic.Uint32 // incremented at the begin and the end of each send; odd during a send

	// Buffers for the next transfer: the messages as queued, the batch made of them, or a single
	// message. See plain.
	items []transport.Item
	batch amqp.Message
	parts [][]byte
	buf   []byte
	plain plain

	// Guarded by session.mu.
	running  bool // the goroutine exists
	queue    []transport.Item
	rejected []transport.Item // messages of a rejected batch, each to be sent alone before the queue
}

// putLocked queues messages. session.mu is held.
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

// idleLinkLost starts the goroutine to handle the loss of an idle link. A running goroutine notices
// the loss by itself.
func (t *telemetry) idleLinkLost(l *outLink, err error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if !t.running && t.link == l {
		t.idleLoss = err
		t.startLocked()
	}
}

// run is the goroutine of telemetry.
func (t *telemetry) run() {
	s := t.s
	idle := newLinger()
	defer idle.Stop()
	if t.idleLoss != nil {
		t.dropIdleLink()
	}
	for s.ctx.Err() == nil {
		var ended chan struct{}
		if t.link != nil {
			ended = t.link.ended
		}
		select {
		case <-t.wake:
			idle.used = true
			t.sendQueued()
		case <-idle.C:
			if idle.expired() && t.retire() {
				return
			}
		case <-ended:
			t.linkLost(t.link.err, nil, 0)
		case <-s.ctx.Done():
		}
	}
	if t.link != nil {
		t.link.stop()
		s.conn.window.leave(t)
	}
}

// dropIdleLink gives up a link that was lost while idle; the next message attaches another one. A
// condition about the device ends the session.
func (t *telemetry) dropIdleLink() {
	s := t.s
	cause := t.idleLoss
	t.idleLoss = nil
	t.drop(cause)
	if s.ctx.Err() != nil || s.conn.Gone() {
		return
	}
	if why := lossOf(s.conn.Explain(cause)); blameOf(why) == blameDevice {
		s.fail(why)
	}
}

// retire reports whether the goroutine must end: nothing is queued or in flight.
func (t *telemetry) retire() bool {
	s := t.s
	if t.link != nil && t.link.inFlight() > 0 {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(t.queue)+len(t.rejected) > 0 {
		return false
	}
	t.items, t.parts, t.buf, t.queue = nil, nil, nil, nil
	t.running = false
	if t.link != nil && !s.over {
		s.conn.idle.add(t.link)
	}
	return true
}

// sendQueued sends the queued messages, or reports their failure.
func (t *telemetry) sendQueued() {
	s := t.s
	for s.ctx.Err() == nil {
		s.mu.Lock()
		t.single += len(t.rejected)
		t.items = append(append(t.items[:0], t.rejected...), t.queue...)
		clear(t.queue)
		t.rejected, t.queue = nil, t.queue[:0]
		s.mu.Unlock()
		t.refuseFields()
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

// refuseFields removes the messages with a field that has no place here, and reports them.
func (t *telemetry) refuseFields() {
	t.items = slices.DeleteFunc(t.items, func(item transport.Item) bool {
		broker := t.s.opt.Addresses != nil
		e := operr.NoPlace(item.Msg, "AMQP", broker)
		if e == nil && broker {
			e = operr.NoPlaceOutsideHubs(item.Msg, "AMQP", "System.To", "System.UserID")
		}
		if e == nil {
			return false
		}
		e.Proto = proto
		t.s.cfg.Sink.Done(item.Tag, e)
		return true
	})
}

// sendSome sends the first messages, as many as fit into one transfer, and returns their number. ok
// is false when the link or more was lost, which sendSome has reported.
func (t *telemetry) sendSome(items []transport.Item) (n int, ok bool) {
	s := t.s
	if limit := s.info.MaxSize; limit > 0 {
		if size := items[0].Msg.Size(); size > limit {
			e := operr.TooLarge(size, len(items[0].Msg.Body), limit)
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
		case <-t.link.ended: // while the first message waited to be alone
			t.linkLost(t.link.err, items, 0)
			return 0, false
		default:
		}
		m, n, size := t.encode(items)
		f := newTransfer(items[:n])
		if !s.conn.window.take(&f.exchange, t, size, s.ctx.Done()) {
			f.free()
			return 0, false
		}
		s.conn.Stream.WaitRoom(s.ctx)
		fresh := t.link.sends == 0
		err := t.transfer(m, f)
		switch {
		case err == nil:
			t.wasSingle = t.single > 0
			t.single = max(0, t.single-n)
			return n, true
		case s.ctx.Err() != nil || s.conn.Gone():
			return 0, false
		case localRefusal(err) && n > 1:
			t.single = max(t.single, n) // sends each alone, to find the one that is to blame
		case localRefusal(err):
			t.report(items[:n], failed(transport.OpSend, localKind(err), err))
			return n, true
		case !errors.Is(err, errNoCredit) && !fresh && t.link.inFlight() == 0 && amqpconn.Ended(err) != nil:
			t.drop(err) // it was lost while idle: another one is attached
		default:
			t.linkLost(err, items, n)
			return 0, false
		}
	}
}

// ready attaches the link if needed, and waits for the outcomes of earlier messages before a
// message that must be alone. It returns false without a link, after it has reported the failure.
func (t *telemetry) ready() bool {
	s := t.s
	for {
		if t.link == nil {
			var err error
			if t.link, err = s.openOutLink(); err != nil {
				if s.ctx.Err() == nil && !s.conn.Gone() {
					s.fail(lossOf(err))
				}
				return false
			}
		}
		if t.single == 0 && !t.wasSingle || t.link.inFlight() == 0 {
			return true
		}
		select {
		case <-t.link.settled:
		case <-t.link.ended:
			return true // sending will fail
		case <-s.ctx.Done():
			return false
		}
	}
}

var (
	errNoCredit = errors.New("the hub gave the link no credit within Options.CreditTimeout")
	errNoWindow = errors.New("the hub did not open the session's window within Options.CreditTimeout")
)

// transfer sends m and bounds the wait for credit.
func (t *telemetry) transfer(m *amqp.Message, f *transfer) error {
	if t.credited == nil || t.credited.Err() != nil {
		ctx, cancel := context.WithCancelCause(t.s.ctx)
		t.credited = ctx
		t.creditTimer = time.AfterFunc(t.s.opt.CreditTimeout, func() { t.creditTimedOut(cancel) })
	} else {
		t.creditTimer.Reset(t.s.opt.CreditTimeout)
	}
	ctx := t.credited
	t.sends.Add(1)
	err := t.link.send(ctx, m, f)
	t.sends.Add(1)
	t.creditTimer.Stop()
	if err != nil && errors.Is(context.Cause(ctx), errNoCredit) {
		return errNoCredit
	}
	return err
}

// creditTimedOut ends the wait for credit. While the session's window is closed the library ignores
// the context, so the device's session must end.
func (t *telemetry) creditTimedOut(cancel context.CancelCauseFunc) {
	send := t.sends.Load()
	cancel(errNoCredit)
	time.AfterFunc(joinTimeout, func() {
		if send%2 == 1 && t.sends.Load() == send {
			t.s.fail(lost(transport.Timeout, errNoWindow))
		}
	})
}

// batchBytes is the most bytes of a batch, unless its first message is larger. A larger batch saves
// nothing, and its outcome arrives later.
const batchBytes = 24 << 10

// keepBatch is the largest batch buffer that is reused for the next batch.
const keepBatch = batchBytes + batchBytes/2

// sectionHead is the most bytes of the head of a message's section in a batch.
const sectionHead = 8

// encode makes a transfer of the first items. It returns their number and about how many bytes they
// take.
func (t *telemetry) encode(items []transport.Item) (*amqp.Message, int, int) {
	if t.s.opt.Batch == 1 {
		m := items[0].Msg
		return t.plain.fill(m, t.s.opt.Addresses == nil), 1, m.Size()
	}
	most := t.s.opt.Batch
	if t.single > 0 {
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

// localRefusal reports whether the library refused to send a message. The hub has not received it
// then, and the link lives.
func localRefusal(err error) bool {
	if e, ok := err.(*amqp.Error); ok { // not within the error of a link
		return e.Condition == amqp.ErrCondMessageSizeExceeded
	}
	return amqpconn.Ended(err) == nil && !amqpconn.IsConn(err) && !errors.Is(err, errNoCredit)
}

func localKind(err error) transport.Kind {
	if _, ok := err.(*amqp.Error); ok {
		return transport.TooLarge
	}
	return transport.Invalid
}

// report reports the same result for each message.
func (t *telemetry) report(items []transport.Item, err error) {
	for i := range items {
		t.s.cfg.Sink.Done(items[i].Tag, err)
	}
}

// drop gives up the link and returns its unsettled messages.
func (t *telemetry) drop(cause error) []transport.Item {
	l := t.link
	t.link = nil
	items := l.abandon(!errors.Is(cause, errNoCredit))
	switch {
	case amqpconn.IsSession(cause):
		t.s.forget(l.session)
	case errors.Is(cause, errNoCredit): // it lives, and half a message may have been sent on it
		ctx, cancel := context.WithTimeout(t.s.ctx, t.s.opt.OperationTimeout)
		if l.sender.Close(ctx) != nil && t.s.ctx.Err() == nil {
			t.s.forget(l.session)
		}
		cancel()
	}
	return items
}

// linkLost handles the loss of the link. It reports the messages in flight, then next, then the
// queue, so that they are sent again in this order. A condition about the device ends the session
// instead. The first tried messages of next were with the library when the link ended: the hub may
// have received them, and may have ended the link for one of them.
func (t *telemetry) linkLost(cause error, next []transport.Item, tried int) {
	s := t.s
	inFlight := t.drop(cause)
	if s.ctx.Err() != nil || s.conn.Gone() {
		return
	}
	why, about := lost(transport.Throttled, cause), blameNone
	if !errors.Is(cause, errNoCredit) {
		why = lossOf(s.conn.Explain(cause))
		about = blameOf(why)
	}
	if about == blameDevice {
		s.fail(why)
		return
	}
	e := failed(transport.OpSend, why.Kind, why.Err)
	s.mu.Lock()
	queued := append(t.rejected, t.queue...)
	t.rejected, t.queue = nil, nil
	s.mu.Unlock()
	suspects := len(inFlight) + tried
	sent := append(inFlight, next...)
	if about == blameMessage {
		if suspects == 1 {
			t.report(sent[:1], e)
			sent = sent[1:]
		}
		t.single = max(t.single, suspects)
	}
	if about != blameNone || e.Kind == transport.Network {
		e = failed(transport.OpSend, transport.Unavailable, e.Err)
	}
	t.report(sent, operr.OutcomeUnknown(e))
	t.report(queued, e)
}

// outcome reports the outcome of a transfer. The reaper calls it while the transfer still counts as
// in flight, so the goroutine that it wakes has not ended.
func (t *telemetry) outcome(items []transport.Item, state amqp.DeliveryState) {
	s := t.s
	e, about := verdict(state)
	switch {
	case e == nil: // not report: a nil *Error is not a nil error
		for i := range items {
			s.cfg.Sink.Done(items[i].Tag, nil)
		}
	case about == blameDevice:
		s.fail(lost(e.Kind, e.Err))
	case about != blameNone && len(items) > 1:
		// Each message is sent alone, to find the one that is to blame.
		s.mu.Lock()
		if !s.over {
			t.rejected = append(t.rejected, items...)
		}
		s.mu.Unlock()
		poke(t.wake)
	default:
		t.report(items, e)
	}
}

// verdict returns the error of a message by its outcome, nil if the hub accepted it, and the object
// of the outcome. A condition that is not listed is about the message.
func verdict(state amqp.DeliveryState) (*transport.Error, blame) {
	switch state := state.(type) {
	case nil, *amqp.StateAccepted:
		return nil, blameNone
	case *amqp.StateRejected:
		c := amqpconn.ConditionOf("message", state.Error)
		kind, about := amqpconn.Conditions[c.Condition], blames[c.Condition]
		if kind == transport.Unknown {
			about = blameMessage
		}
		return failed(transport.OpSend, kind, c), about
	case *amqp.StateReleased:
		return failed(transport.OpSend, transport.Unavailable, errReleased), blameNone
	case *amqp.StateModified:
		if state.UndeliverableHere {
			return failed(transport.OpSend, transport.Forbidden, errUndeliverable), blameMessage
		}
		return failed(transport.OpSend, transport.Unavailable, errModified), blameNone
	}
	return failed(transport.OpSend, transport.Unavailable, errNoOutcome), blameNone
}

var (
	errReleased      = errors.New("the hub did not take the message (released)")
	errModified      = errors.New("the hub did not take the message (modified)")
	errUndeliverable = errors.New("the hub cannot deliver the message on this link (modified, undeliverable here)")
	errNoOutcome     = errors.New("the hub settled the message without a final outcome")
)
