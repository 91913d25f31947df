package amqp

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// telemetry sends messages over one link. It is attached for the first message, and after a loss
// for the next one. Whatever ends a wait sends what has become possible: a message, an outcome,
// credit, room in the window or in the connection's buffer.
type telemetry struct {
	s    *session
	wake func()           // pump, as one value
	good []transport.Item // owned by the caller of send

	// Guarded by session.mu.
	link      *outLink // nil: none
	attaching bool
	queue     []transport.Item
	rejected  []transport.Item // messages of a rejected batch, each to be sent alone before the queue
	next      *transfer        // made of the first of both, and not sent yet; nil: none
	single    int              // messages to send one at a time, because one of them ended a link
	wasSingle bool             // the latest one was sent alone
	blocked   amqpclient.Blocked
	credit    *time.Timer // bounds the wait for credit or for the session's window; nil: no wait yet
	waits     bool        // it runs
	reports   []results
	buf       encoder
}

// outLink is the sending link for telemetry, with its unsettled transfers.
type outLink struct {
	sender      *amqpclient.Sender
	sends       int       // transfers that were sent
	first, last *transfer // unsettled, the oldest first
	unsettled   int       // their number
	lost        error     // why it ended before it was telemetry.link
}

// transfer is a message or a batch.
type transfer struct {
	exchange      // of the connection's window
	t             *telemetry
	link          *outLink // nil: it is not sent
	items         []transport.Item
	before, after *transfer // of the link, in the order of sending
}

// results are the same result for some messages, to be reported without the lock.
type results struct {
	items []transport.Item
	err   error
}

var transferPool = sync.Pool{New: func() any { return new(transfer) }}

// free returns x to its pool. It must not be in the window.
func (x *transfer) free() {
	clear(x.items)
	*x = transfer{items: x.items[:0]}
	transferPool.Put(x)
}

func (t *telemetry) init(s *session) {
	t.s = s
	t.wake = t.pump
}

// send queues messages and sends what can be sent. A message that has no place here is reported.
func (t *telemetry) send(batch []transport.Item) {
	t.good = t.good[:0]
	for _, item := range batch {
		if e := t.refusal(item.Msg); e != nil {
			if t.s.enter() {
				t.s.cfg.Sink.Done(item.Tag, e)
				t.s.group.Done()
			}
			continue
		}
		t.good = append(t.good, item)
	}
	t.s.mu.Lock()
	if !t.s.over {
		t.queue = append(t.queue, t.good...)
		t.pumpLocked()
	}
	report := t.reportsLocked()
	t.s.mu.Unlock()
	report()
	clear(t.good)
	t.s.flush()
}

// refusal returns why a message is not sent at all; nil if it is.
func (t *telemetry) refusal(m *transport.Message) *transport.Error {
	broker := t.s.opt.Addresses != nil
	e := operr.NoPlace(m, "AMQP", broker)
	if e == nil && broker {
		e = operr.NoPlaceOutsideHubs(m, "AMQP", "System.To", "System.UserID")
	}
	if limit := t.s.info.MaxSize; e == nil && limit > 0 && m.Size() > limit {
		e = operr.TooLarge(m.Size(), len(m.Body), limit)
	}
	if e != nil {
		e.Proto = proto
	}
	return e
}

// pump sends what can be sent. The reading goroutine, a writing one and timers call it.
func (t *telemetry) pump() {
	if !t.s.enter() {
		return
	}
	defer t.s.group.Done()
	t.s.mu.Lock()
	t.pumpLocked()
	report := t.reportsLocked()
	t.s.mu.Unlock()
	report()
	t.s.conn.Kick()
}

// reportsLocked returns a function that reports what has failed, to be called without session.mu,
// which is held.
func (t *telemetry) reportsLocked() (report func()) {
	all := t.reports
	t.reports = nil
	if len(all) == 0 || t.s.over {
		return func() {}
	}
	t.s.group.Add(1)
	return func() {
		defer t.s.group.Done()
		for _, r := range all {
			t.report(r.items, r.err)
		}
	}
}

// report reports the same result for each message.
func (t *telemetry) report(items []transport.Item, err error) {
	for i := range items {
		t.s.cfg.Sink.Done(items[i].Tag, err)
	}
}

// pumpLocked sends what can be sent. session.mu is held.
func (t *telemetry) pumpLocked() {
	for t.nextLocked() {
		x, l := t.next, t.link
		if !t.s.conn.window.take(&x.exchange, t, t.buf.size) || t.s.conn.Full(t.buf.size, t.wake) {
			return
		}
		t.blocked = l.sender.Send(t.buf.format, x, t.buf.parts()...)
		switch t.blocked {
		case amqpclient.NotBlocked:
			t.sentLocked(x, l)
		case amqpclient.NoCredit, amqpclient.NoWindow:
			t.waitForCreditLocked()
			return
		case amqpclient.Gone: // the end of the link is reported, or that of the connection
			return
		}
	}
}

// nextLocked makes the next transfer, unless there is one. It returns false when nothing is to be
// sent, or when the link or an outcome is to be waited for. session.mu is held.
func (t *telemetry) nextLocked() bool {
	for {
		switch {
		case t.s.over || t.next == nil && len(t.queue)+len(t.rejected) == 0:
			return false
		case t.link == nil:
			t.attachLocked()
			return false
		case t.next != nil:
			return true
		}
		from := &t.queue
		if len(t.rejected) > 0 {
			from = &t.rejected
		}
		alone := t.single > 0 || t.wasSingle || len(t.rejected) > 0
		if alone && t.link.unsettled > 0 {
			return false
		}
		most := t.s.opt.Batch
		if t.single > 0 || len(t.rejected) > 0 {
			most = 1
		}
		limit := t.s.conn.window.batch()
		peer := t.link.sender.MaxMessageSize()
		if peer > 0 {
			limit = int(min(uint64(limit), peer))
		}
		n := t.buf.encode((*from)[:min(most, len(*from))], limit, t.s.opt)
		items := (*from)[:n]
		if peer > 0 && uint64(t.buf.size) > peer {
			// only a message that is alone can be too large
			e := failed(transport.OpSend, transport.TooLarge, &tooLargeError{t.buf.size, peer})
			t.reports = append(t.reports, results{append([]transport.Item(nil), items...), e})
			t.single = max(0, t.single-1)
		} else {
			t.next = transferPool.Get().(*transfer)
			t.next.t, t.next.items = t, append(t.next.items, items...)
			t.wasSingle = t.single > 0 || len(t.rejected) > 0
			t.single = max(0, t.single-n)
		}
		rest := copy(*from, (*from)[n:])
		clear((*from)[rest:])
		*from = (*from)[:rest]
	}
}

// sentLocked records that the next transfer was sent. session.mu is held.
func (t *telemetry) sentLocked(x *transfer, l *outLink) {
	t.s.conn.window.wrote(&x.exchange)
	t.buf.done()
	t.next = nil
	t.stopCreditLocked()
	l.sends++
	l.unsettled++
	x.link = l
	if x.before = l.last; x.before == nil {
		l.first = x
	} else {
		x.before.after = x
	}
	l.last = x
}

// Settled reports the outcome of a transfer. The reading goroutine calls it.
func (x *transfer) Settled(state wire.DeliveryState) {
	t := x.t
	s := t.s
	if !s.enter() {
		return
	}
	defer s.group.Done()
	s.mu.Lock()
	l := x.link
	if l != t.link {
		s.mu.Unlock()
		return // the loss of its link was reported
	}
	if x.before == nil {
		l.first = x.after
	} else {
		x.before.after = x.after
	}
	if x.after == nil {
		l.last = x.before
	} else {
		x.after.before = x.before
	}
	l.unsettled--
	s.mu.Unlock()
	s.conn.window.answered(&x.exchange)
	t.outcome(x.items, state)
	x.free()
	s.mu.Lock()
	waits := t.next == nil && len(t.queue)+len(t.rejected) > 0
	s.mu.Unlock()
	if waits {
		t.pump()
	}
}

// attachLocked attaches the link, on a goroutine that ends then. session.mu is held.
func (t *telemetry) attachLocked() {
	if !t.attaching {
		t.attaching = true
		t.s.goLocked(t.attach)
	}
}

func (t *telemetry) attach() {
	l, err := t.open()
	s := t.s
	s.mu.Lock()
	t.attaching = false
	switch {
	case s.over:
	case err == nil:
		t.link = l
		if err = l.lost; err == nil {
			t.pumpLocked()
		}
	case s.ctx.Err() == nil && !s.conn.Gone():
		s.fail(lossOf(err))
	}
	report := t.reportsLocked()
	s.mu.Unlock()
	report()
	if l != nil && l.lost != nil {
		t.ended(l, l.lost)
	}
	s.conn.Kick()
}

// open attaches the link.
func (t *telemetry) open() (*outLink, error) {
	l := new(outLink)
	err := t.s.attach(func(ctx context.Context, on *amqpclient.Session) (err error) {
		l.sender, err = on.NewSender(ctx, &amqpclient.SenderOptions{Credited: t.wake, LinkOptions: amqpclient.LinkOptions{
			Address: t.s.addr.Telemetry, Properties: t.s.opt.linkProperties(), Detached: func(err error) { t.ended(l, err) },
		}})
		return err
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

var (
	errNoCredit = errors.New("the hub gave the link no credit within Options.CreditTimeout")
	errNoWindow = errors.New("the hub did not open the session's window within Options.CreditTimeout")
)

// waitForCreditLocked bounds the wait for credit or the session's window. session.mu is held.
func (t *telemetry) waitForCreditLocked() {
	switch {
	case t.waits:
		return
	case t.credit == nil:
		t.credit = time.AfterFunc(t.s.opt.CreditTimeout, t.creditTimedOut)
	default:
		t.credit.Reset(t.s.opt.CreditTimeout)
	}
	t.waits = true
}

func (t *telemetry) stopCreditLocked() {
	if t.waits {
		t.waits = false
		t.credit.Stop()
	}
}

// creditTimedOut gives up the link, or without a window the device's session. The timer calls it.
func (t *telemetry) creditTimedOut() {
	s := t.s
	if !s.enter() {
		return
	}
	defer s.group.Done()
	s.mu.Lock()
	l, waited := t.link, t.waits && t.next != nil
	t.waits = false
	noWindow := t.blocked == amqpclient.NoWindow
	s.mu.Unlock()
	switch {
	case !waited || l == nil:
	case noWindow:
		s.fail(lost(transport.Timeout, errNoWindow))
	default:
		l.sender.Detach()
		t.linkLost(l, errNoCredit)
	}
}

// ended handles the end of a link by the hub. One that was lost while idle is attached again for
// the next message. The reading goroutine calls it.
func (t *telemetry) ended(l *outLink, why error) {
	s := t.s
	if !s.enter() {
		return
	}
	defer s.group.Done()
	s.mu.Lock()
	if t.link != l {
		l.lost = why // it is being attached, or was given up
		s.mu.Unlock()
		return
	}
	waiting := t.next != nil || len(t.queue)+len(t.rejected) > 0
	if l.unsettled > 0 || l.sends == 0 && waiting {
		s.mu.Unlock()
		t.linkLost(l, why)
		return
	}
	t.link = nil
	t.stopCreditLocked()
	s.mu.Unlock()
	if e := lossOf(why); blameOf(e) == blameDevice {
		s.fail(e)
		return
	}
	t.pump()
}

// linkLost handles the loss of the link. It reports the messages in flight, then the queue, so that
// they are sent again in this order. A condition about the device ends the session instead.
func (t *telemetry) linkLost(l *outLink, cause error) {
	s := t.s
	why, about := lost(transport.Throttled, cause), blameNone
	if !errors.Is(cause, errNoCredit) {
		why = lossOf(cause)
		about = blameOf(why)
	}
	s.mu.Lock()
	if t.link != l || s.over {
		s.mu.Unlock()
		return
	}
	inFlight := t.dropLocked()
	if about == blameDevice {
		s.mu.Unlock()
		s.fail(why)
		return
	}
	var queued []transport.Item
	if t.next != nil {
		queued = append(queued, t.next.items...)
		s.conn.window.drop(&t.next.exchange)
		t.next = nil
	}
	queued = append(append(queued, t.rejected...), t.queue...)
	t.rejected, t.queue = nil, nil
	e := failed(transport.OpSend, why.Kind, why.Err)
	suspects := len(inFlight)
	if about == blameMessage && suspects == 1 {
		t.reports = append(t.reports, results{inFlight, e})
		inFlight = nil
	}
	if about == blameMessage {
		t.single = max(t.single, suspects)
	}
	if about != blameNone || e.Kind == transport.Network {
		e = failed(transport.OpSend, transport.Unavailable, e.Err)
	}
	t.reports = append(t.reports, results{inFlight, operr.OutcomeUnknown(e)}, results{queued, e})
	report := t.reportsLocked()
	s.mu.Unlock()
	report()
}

// dropLocked gives up the link and returns its unsettled messages, in the order of sending.
// session.mu is held.
func (t *telemetry) dropLocked() (items []transport.Item) {
	l := t.link
	t.link = nil
	t.stopCreditLocked()
	for x := l.first; x != nil; x = x.after {
		t.s.conn.window.drop(&x.exchange)
		items = append(items, x.items...)
	}
	return items
}

// stopLocked ends telemetry: Run has ended. session.mu is held.
func (t *telemetry) stopLocked() {
	t.queue, t.rejected, t.next, t.link = nil, nil, nil, nil
	t.stopCreditLocked()
	t.s.conn.window.leave(t)
}

// outcome reports the outcome of a transfer.
func (t *telemetry) outcome(items []transport.Item, state wire.DeliveryState) {
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
	default:
		t.report(items, e)
	}
}

// tooLargeError is for a message that is larger than the link allows.
type tooLargeError struct {
	size int
	most uint64
}

func (e *tooLargeError) Error() string {
	return "the message has " + strconv.Itoa(e.size) + " bytes in AMQP's encoding, and the link takes " +
		strconv.FormatUint(e.most, 10) + " at most (max-message-size); send a smaller one"
}

// verdict returns the error of a message by its outcome, nil if the hub accepted it, and the object
// of the outcome. A condition that is not listed is about the message.
func verdict(state wire.DeliveryState) (*transport.Error, blame) {
	switch state := state.(type) {
	case nil, *wire.Accepted:
		return nil, blameNone
	case *wire.Rejected:
		c := amqpclient.ConditionOf("message", state.Error)
		kind, about := amqpclient.Conditions[c.Condition], blames[c.Condition]
		if kind == transport.Unknown {
			about = blameMessage
		}
		return failed(transport.OpSend, kind, c), about
	case *wire.Released:
		return failed(transport.OpSend, transport.Unavailable, errReleased), blameNone
	case *wire.Modified:
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
