package amqp

import (
	"errors"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// twin is the pair for the twin, with its pending requests.
type twin struct {
	pair

	// Guarded by session.mu.
	pending map[uint32]transport.Op
	desired bool            // changes of desired properties are subscribed to
	granted bool            // the hub granted that subscription
	waiters []*subscription // OpSubscribes for changes without a reply
	timer   *time.Timer     // ends the session without an answer to the subscription; nil before the first
}

// desiredID is the correlation id of the subscription to changes. Those of requests are numbers.
const desiredID = "desired"

func (t *twin) init(s *session) {
	t.pair = pair{s: s, name: "twin", address: s.addr.twin, settleMode: amqp.SenderSettleModeSettled,
		onMessage: t.message, onOpen: t.subscribeAgain, onLost: t.lost, onRefused: t.refused, onUnsent: t.tooLarge}
}

// request sends a request.
func (t *twin) request(r *transport.Request) {
	m := &amqp.Message{Properties: &amqp.MessageProperties{CorrelationID: strconv.FormatUint(uint64(r.ID), 10)}}
	if r.Op == transport.OpTwinGet {
		m.Annotations = amqp.Annotations{"operation": "GET"}
		m.Data = [][]byte{{' '}}
	} else {
		m.Annotations = amqp.Annotations{"operation": "PATCH", "resource": "/properties/reported"}
		if r.Version != 0 {
			m.Annotations["version"] = r.Version
		}
		m.Data = [][]byte{append([]byte(nil), r.Body...)}
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.pending == nil {
		t.pending = make(map[uint32]transport.Op)
	}
	t.pending[r.ID] = r.Op
	t.sendLocked(m)
}

// tooLarge replies to a request that exceeds the hub's limit.
func (t *twin) tooLarge(m *amqp.Message, err error) {
	n, bad := strconv.ParseUint(idText(m.Properties.CorrelationID), 10, 32)
	t.s.mu.Lock()
	op, pending := t.pending[uint32(n)]
	delete(t.pending, uint32(n))
	t.s.mu.Unlock()
	if bad == nil && pending {
		t.s.cfg.Sink.Reply(uint32(n), transport.Reply{Err: failed(op, transport.TooLarge, err)})
	}
}

// watch subscribes to changes of the desired properties.
func (t *twin) watch(sub *subscription) {
	t.s.mu.Lock()
	granted := t.granted
	if !granted {
		t.waiters = append(t.waiters, sub)
		if t.desired = true; t.attached {
			t.subscribeLocked()
		} else {
			t.startLocked()
		}
	}
	t.s.mu.Unlock()
	if granted {
		t.s.subscribed(sub, nil)
	}
}

// subscribeLocked queues the subscription to changes. session.mu is held.
func (t *twin) subscribeLocked() {
	t.queue = append(t.queue, &amqp.Message{
		Properties:  &amqp.MessageProperties{CorrelationID: desiredID},
		Annotations: amqp.Annotations{"operation": "PUT", "resource": "/notifications/twin/properties/desired"},
		Data:        [][]byte{{' '}},
	})
	t.flushLocked()
	if t.timer == nil {
		t.timer = time.AfterFunc(t.s.opt.OperationTimeout, t.unanswered)
	} else {
		t.timer.Reset(t.s.opt.OperationTimeout)
	}
}

// unanswered ends the session, which would miss changes.
func (t *twin) unanswered() { t.s.fail(lost(transport.Timeout, errNoAnswer)) }

// subscribeAgain subscribes to changes on new links.
func (t *twin) subscribeAgain() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.desired {
		t.subscribeLocked()
	}
}

// message handles an answer or a change.
func (t *twin) message(m *amqp.Message) {
	s := t.s
	body := bodyOf(m)
	version, _ := whole(m.Annotations["version"]) // with version 0 the client reads the twin
	if m.Properties == nil || m.Properties.CorrelationID == nil {
		s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.FeatureDesired, Version: version,
			Msg: &transport.Message{Body: body}})
		return
	}
	code, _ := whole(m.Annotations["status"])
	id := idText(m.Properties.CorrelationID)
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
		if after, ok := whole(m.Annotations["retry-after"]); ok && after > 0 {
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
	if t.timer != nil { // nil without a subscription
		t.timer.Stop()
	}
	waiters := t.waiters
	t.waiters = nil
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

// lost fails the pending requests, whose outcome is unknown. session.mu is held for lost, and must
// not be held for report.
func (t *twin) lost() (report func()) {
	pending := t.pending
	t.pending = nil
	if t.timer != nil {
		t.timer.Stop()
	}
	return func() {
		for id, op := range pending {
			t.s.cfg.Sink.Reply(id, transport.Reply{Err: operr.OutcomeUnknown(failed(op, transport.Unavailable,
				errLinkLost))})
		}
	}
}

// refused fails all requests when the links cannot be attached. session.mu is held for refused, and
// must not be held for report.
func (t *twin) refused(err error) (report func()) {
	pending, waiters := t.pending, t.waiters
	t.pending, t.waiters = nil, nil
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

// whole returns an integer of any AMQP type.
func whole(v any) (int64, bool) {
	switch v := v.(type) {
	case int8:
		return int64(v), true
	case int16:
		return int64(v), true
	case int32:
		return int64(v), true
	case int64:
		return v, true
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case uint64:
		return int64(v), v < 1<<63
	}
	return 0, false
}
