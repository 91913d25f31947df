package amqp

import (
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/amqpclient"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp/internal/message"
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
	backlog   backlog
	blocked   amqpclient.Blocked
	credit    *time.Timer // bounds the wait for credit or for the session's window; nil: no wait yet
	waits     bool        // it runs
	reports   []results
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
		if e := message.Refusal(item.Msg, t.s.opt.Addresses == nil, t.s.info.MaxSize); e != nil {
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
		t.backlog.queue = append(t.backlog.queue, t.good...)
		t.pumpLocked()
	}
	report := t.reportsLocked()
	t.s.mu.Unlock()
	report()
	clear(t.good)
	t.s.flush()
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
		x, l, buf := t.backlog.next, t.link, &t.backlog.buf
		if !t.s.conn.window.take(&x.exchange, t, buf.size) || t.s.conn.Full(buf.size, &t.wake) {
			return
		}
		t.blocked = l.sender.Send(buf.format, x, buf.parts()...)
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
	b := &t.backlog
	for {
		switch {
		case t.s.over || b.empty():
			return false
		case t.link == nil:
			t.attachLocked()
			return false
		case b.next != nil:
			return true
		case b.needsIdleLink() && t.link.unsettled > 0:
			return false
		}
		peer := t.link.sender.MaxMessageSize()
		if items := b.prepare(t, t.s.conn.window.batch(), peer, t.s.opt); items != nil {
			e := failed(transport.OpSend, transport.TooLarge, &tooLargeError{b.buf.size, peer})
			t.reports = append(t.reports, results{items, e})
		}
	}
}

// sentLocked records that the next transfer was sent. session.mu is held.
func (t *telemetry) sentLocked(x *transfer, l *outLink) {
	t.s.conn.window.wrote(&x.exchange)
	t.backlog.sent()
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
	waits := t.backlog.waits()
	s.mu.Unlock()
	if waits {
		t.pump()
	}
}

// stopLocked ends telemetry: Run has ended. session.mu is held.
func (t *telemetry) stopLocked() {
	t.backlog.drain()
	t.link = nil
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
	case about == amqpclient.BlameDevice:
		s.fail(lost(e.Kind, e.Err))
	case about != amqpclient.BlameNone && len(items) > 1:
		// Each message is sent alone, to find the one that is to blame.
		s.mu.Lock()
		if !s.over {
			t.backlog.rejected = append(t.backlog.rejected, items...)
		}
		s.mu.Unlock()
	default:
		t.report(items, e)
	}
}
