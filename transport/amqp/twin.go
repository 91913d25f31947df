package amqp

import (
	"context"
	"errors"
	"strconv"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp/internal/message"
)

// twin is the pair for the twin, with its pending requests.
type twin struct {
	pair

	// Guarded by session.mu.
	pending map[uint32]transport.Op
	desired bool            // changes of desired properties are subscribed to
	granted bool            // the hub granted that subscription
	waiters []*subscription // OpSubscribes for changes without a reply
	// answer ends the wait for the answer to that subscription, which has arrived or never will; nil:
	// none is outstanding.
	answer func(arrived bool)
}

// desiredID is the correlation id of the subscription to changes. Those of requests are numbers.
const desiredID = "desired"

func (t *twin) init(s *session) {
	t.pair.init(s, "twin", s.addr.twin)
	t.onMessage, t.onUnsent = t.message, t.tooLarge
	t.opened, t.lost, t.refused = t.subscribeAgain, t.lostLinks, t.refusedLinks
}

// maxPending is how many requests may have no answer. The client bounds those that wait; a hub that
// answers none leaves the others here, which were given up.
const maxPending = 1024

// request sends a request. When the hub owes too many answers, the session ends.
func (t *twin) request(r *transport.Request) {
	body, annotations := []byte{' '}, operation("GET", "")
	if r.Op == transport.OpTwinPatch {
		body, annotations = r.Body, operation("PATCH", "/properties/reported")
		if r.Version != 0 {
			annotations = append(annotations, wire.Pair{Key: wire.Symbol("version"), Value: r.Version})
		}
	}
	m := bodyMessage(body, strconv.FormatUint(uint64(r.ID), 10))
	m.MessageAnnotations = annotations
	t.s.mu.Lock()
	var refused []unsent
	full := len(t.pending) >= maxPending
	if !t.s.over && !full {
		if t.pending == nil {
			t.pending = make(map[uint32]transport.Op)
		}
		t.pending[r.ID] = r.Op
		refused = t.sendLocked(r.ID, m)
	}
	t.s.mu.Unlock()
	if full {
		t.unanswered()
		return
	}
	t.s.flush()
	t.refuse(refused)
}

// operation returns the annotations of a request.
func operation(name, resource string) wire.Map {
	m := wire.Map{{Key: wire.Symbol("operation"), Value: name}}
	if resource != "" {
		m = append(m, wire.Pair{Key: wire.Symbol("resource"), Value: resource})
	}
	return m
}

// tooLarge replies to a request that exceeds the hub's limit.
func (t *twin) tooLarge(id uint32, err error) {
	t.s.mu.Lock()
	op, pending := t.pending[id]
	delete(t.pending, id)
	t.s.mu.Unlock()
	if pending {
		t.s.cfg.Sink.Reply(id, transport.Reply{Err: failed(op, transport.TooLarge, err)})
	}
}

// watch subscribes to changes of the desired properties.
func (t *twin) watch(sub *subscription) {
	t.s.mu.Lock()
	granted := t.granted
	var refused []unsent
	if !granted {
		t.waiters = append(t.waiters, sub)
		if t.desired = true; t.attached {
			refused = t.subscribeLocked()
		} else {
			t.startLocked()
		}
	}
	t.s.mu.Unlock()
	t.s.flush()
	t.refuse(refused)
	if granted {
		t.s.subscribed(sub, nil)
	}
}

// subscribeLocked queues the subscription to changes, and sends what can be sent. It returns what
// flushLocked does. session.mu is held.
func (t *twin) subscribeLocked() (refused []unsent) {
	s := t.s
	if s.over {
		return nil
	}
	if t.answer == nil {
		t.awaitLocked()
	}
	m := bodyMessage([]byte{' '}, desiredID)
	m.MessageAnnotations = operation("PUT", "/notifications/twin/properties/desired")
	return t.sendLocked(0, m)
}

// awaitLocked begins the wait for the answer to the subscription. session.mu is held.
func (t *twin) awaitLocked() {
	ctx, cancel := context.WithCancel(t.s.ctx)
	bounded, done := t.s.conn.await(ctx, t.s.cfg.Progress)
	stop := context.AfterFunc(bounded, func() {
		if errors.Is(context.Cause(bounded), errNoAnswer) {
			t.unanswered()
		}
	})
	t.answer = func(arrived bool) {
		stop()
		if !arrived {
			cancel()
		}
		done()
		cancel()
	}
}

// endWaitLocked ends that wait, if there is one. session.mu is held.
func (t *twin) endWaitLocked(arrived bool) {
	if t.answer != nil {
		t.answer(arrived)
		t.answer = nil
	}
}

// stopLocked ends the twin: Run has ended. session.mu is held.
func (t *twin) stopLocked() {
	t.pair.stopLocked()
	t.endWaitLocked(false)
}

// unanswered ends the session, which would miss changes or answers.
func (t *twin) unanswered() { t.s.fail(lost(transport.Timeout, errNoAnswer)) }

// subscribeAgain subscribes to changes on new links, and sends the requests that wait for them.
// session.mu is held for subscribeAgain, and must not be held for report.
func (t *twin) subscribeAgain() (report func()) {
	var refused []unsent
	if t.desired {
		refused = t.subscribeLocked()
	}
	refused = append(refused, t.flushLocked()...)
	return func() { t.refuse(refused) }
}

// message handles an answer or a change.
func (t *twin) message(m *wire.Message) {
	s := t.s
	body, _ := message.Body(m)
	version, _ := m.MessageAnnotations.Whole("version") // with version 0 the client reads the twin
	if m.Properties == nil || m.Properties.CorrelationID == nil {
		s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureDesired, Version: version,
			Msg: &transport.Message{Body: body}})
		return
	}
	code, _ := m.MessageAnnotations.Whole("status")
	id := message.IDText(m.Properties.CorrelationID)
	_, good := statuscode.TwinKind(int(code))
	if id == desiredID {
		t.subscriptionAnswered(good, int(code), body)
		return
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return
	}
	s.mu.Lock()
	op, pending := t.pending[uint32(n)]
	delete(t.pending, uint32(n))
	s.mu.Unlock()
	if !pending {
		return
	}
	r := transport.Reply{Status: int(code), Version: version, Body: body}
	if !good {
		e := statuscode.TwinRefusal(op, proto, int(code), body)
		if after, ok := m.MessageAnnotations.Whole("retry-after"); ok && after > 0 && after < 1<<31 {
			e.RetryAfter = time.Duration(after) * time.Second
		}
		r.Err = e
	}
	s.cfg.Sink.Reply(uint32(n), r)
}

// subscriptionAnswered handles the answer to the subscription to changes. When it was granted
// again, on new links, changes may have been missed: a delivery without a version says so.
func (t *twin) subscriptionAnswered(good bool, code int, body []byte) {
	s := t.s
	s.mu.Lock()
	again := t.granted
	t.granted = good
	t.endWaitLocked(true)
	waiters := t.waiters
	t.waiters = nil
	if !good && len(waiters) > 0 { // who waits decides what follows; new links do not ask again
		t.desired = false
	}
	s.mu.Unlock()
	var err error
	if !good {
		err = statuscode.TwinRefusal(transport.OpSubscribe, proto, code, body)
	}
	for _, sub := range waiters {
		s.subscribed(sub, err)
	}
	switch {
	case !good && len(waiters) == 0:
		s.fail(lossOf(err))
	case good && again:
		s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureDesired, Msg: &transport.Message{Body: []byte("{}")}})
	}
}

var errLinkLost = errors.New("the link was lost before the answer")

// lostLinks fails the pending requests, whose outcome is unknown. session.mu is held for
// lostLinks, and must not be held for report.
func (t *twin) lostLinks() (report func()) {
	pending := t.pending
	t.pending, t.queue = nil, nil
	t.stopTimerLocked()
	t.endWaitLocked(false)
	return func() {
		for id, op := range pending {
			t.s.cfg.Sink.Reply(id, transport.Reply{Err: operr.OutcomeUnknown(failed(op, transport.Unavailable,
				errLinkLost))})
		}
	}
}

// refusedLinks fails all requests when the links cannot be attached. session.mu is held for
// refusedLinks, and must not be held for report.
func (t *twin) refusedLinks(err error) (report func()) {
	pending, waiters := t.pending, t.waiters
	t.pending, t.waiters, t.queue = nil, nil, nil
	if len(waiters) > 0 {
		t.desired = false
	}
	return func() {
		e := transport.Find(err)
		for id, op := range pending {
			t.s.cfg.Sink.Reply(id, transport.Reply{Err: failed(op, e.Kind, e.Err)})
		}
		for _, sub := range waiters {
			t.s.subscribed(sub, err)
		}
	}
}
