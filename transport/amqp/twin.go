package amqp

import (
	"errors"
	"strconv"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/internal/status"
)

// StatusError is a request for the twin that the hub refused: the cause of the *transport.Error in
// its Reply, reachable with errors.As. Its fields are Status, Code and Message.
type StatusError = status.Error

// twin is the pair for the twin, and what was asked on it.
type twin struct {
	pair

	// Guarded by session.mu.
	asked   map[uint32]transport.Op
	desired bool        // changes are wanted
	granted bool        // and the hub tells them
	wishes  []*grant    // OpSubscribe for them
	late    *time.Timer // ends the session when they are not answered; nil before the first
}

// desiredID is the correlation id of the request to tell changes. Those of requests are numbers.
const desiredID = "desired"

func (t *twin) init(s *session) {
	t.pair = pair{s: s, name: "twin", address: s.addr.twin, wait: amqp.SenderSettleModeSettled, take: t.take,
		opened: t.opened, lost: t.lost, refused: t.refused, unsent: t.unsent}
}

// request sends one.
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
	if t.asked == nil {
		t.asked = make(map[uint32]transport.Op)
	}
	t.asked[r.ID] = r.Op
	t.sendLocked(m)
}

// unsent replies to a request that is larger than the hub takes.
func (t *twin) unsent(m *amqp.Message, err error) {
	n, bad := strconv.ParseUint(idText(m.Properties.CorrelationID), 10, 32)
	t.s.mu.Lock()
	op, asked := t.asked[uint32(n)]
	delete(t.asked, uint32(n))
	t.s.mu.Unlock()
	if bad == nil && asked {
		t.s.cfg.Sink.Reply(uint32(n), transport.Reply{Err: failed(op, transport.TooLarge, err)})
	}
}

// want asks for changes of the desired properties to be told.
func (t *twin) want(g *grant) {
	t.s.mu.Lock()
	granted := t.granted
	if !granted {
		t.wishes = append(t.wishes, g)
		if t.desired = true; t.attached {
			t.askLocked()
		} else {
			t.startLocked()
		}
	}
	t.s.mu.Unlock()
	if granted {
		t.s.settle(g, nil)
	}
}

func (t *twin) askLocked() {
	t.queue = append(t.queue, &amqp.Message{
		Properties:  &amqp.MessageProperties{CorrelationID: desiredID},
		Annotations: amqp.Annotations{"operation": "PUT", "resource": "/notifications/twin/properties/desired"},
		Data:        [][]byte{{' '}},
	})
	t.flushLocked()
	if t.late == nil {
		t.late = time.AfterFunc(t.s.opt.OperationTimeout, t.unanswered)
	} else {
		t.late.Reset(t.s.opt.OperationTimeout)
	}
}

// unanswered ends the session: without the hub's promise the device would be deaf.
func (t *twin) unanswered() { t.s.fail(lost(transport.Timeout, errNoAnswer)) }

func (t *twin) opened(bool) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if t.desired {
		t.askLocked()
	}
}

// take takes an answer or a change.
func (t *twin) take(m *amqp.Message) {
	s := t.s
	body := bodyOf(m)
	version, _ := whole(m.Annotations["version"]) // without one the client reads the twin
	if m.Properties == nil || m.Properties.CorrelationID == nil {
		s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.Desired, Version: version,
			Msg: &transport.Message{Body: body}})
		return
	}
	code, _ := whole(m.Annotations["status"])
	id := idText(m.Properties.CorrelationID)
	_, good := status.KindOf(int(code))
	if id == desiredID {
		t.granting(good, int(code), body)
		return
	}
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return
	}
	s.mu.Lock()
	op, asked := t.asked[uint32(n)]
	delete(t.asked, uint32(n))
	s.mu.Unlock()
	if !asked {
		return
	}
	r := transport.Reply{Status: int(code), Version: version, Body: body}
	if !good {
		e := status.Refusal(op, proto, int(code), body)
		if after, ok := whole(m.Annotations["retry-after"]); ok && after > 0 {
			e.RetryAfter = time.Duration(after) * time.Second
		}
		r.Err = e
	}
	s.cfg.Sink.Reply(uint32(n), r)
}

// granting takes the answer to the wish for changes. When it was granted anew, on another link,
// changes may have been missed, and the device is told so.
func (t *twin) granting(good bool, code int, body []byte) {
	s := t.s
	s.mu.Lock()
	again := t.granted
	t.granted = good
	if t.late != nil { // else it was not asked
		t.late.Stop()
	}
	wishes := t.wishes
	t.wishes = nil
	s.mu.Unlock()
	var err error
	if !good {
		err = status.Refusal(transport.OpSubscribe, proto, code, body)
	}
	for _, g := range wishes {
		s.settle(g, err)
	}
	switch {
	case !good && len(wishes) == 0:
		s.fail(lossOf(err))
	case good && again:
		s.cfg.Sink.Deliver(&transport.Delivery{Kind: transport.Desired, Msg: &transport.Message{Body: []byte("{}")}})
	}
}

var errLinkLost = errors.New("the link was lost before the answer")

// lost is told that what was under way is lost.
func (t *twin) lost() (tell func()) {
	asked := t.asked
	t.asked = nil
	if t.late != nil {
		t.late.Stop()
	}
	return func() {
		for id, op := range asked {
			t.s.cfg.Sink.Reply(id, transport.Reply{Err: transport.OutcomeUnknown(failed(op, transport.Unavailable,
				errLinkLost))})
		}
	}
}

// refused is told that the links are not to be had.
func (t *twin) refused(err error) (tell func()) {
	asked, wishes := t.asked, t.wishes
	t.asked, t.wishes = nil, nil
	return func() {
		e := transport.Find(err)
		for id, op := range asked {
			t.s.cfg.Sink.Reply(id, transport.Reply{Err: failed(op, e.Kind, e.Err)})
		}
		for _, g := range wishes {
			t.s.settle(g, err)
		}
	}
}

// whole reads a whole number of any type of AMQP.
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
