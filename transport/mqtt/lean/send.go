package lean

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

const (
	// fullWrite is how much is put together before it is written, when the buffer may grow.
	fullWrite = 16 << 10
	// slowWrite is how long writing takes, from the start of a Send or Do or from the last sign of
	// life, when a write that ends is one: what blocked got on.
	slowWrite = time.Second
)

// enter takes the write side. False: the session has ended or takes its leave.
func (s *session) enter() bool {
	select {
	case s.writing <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *session) leave() { <-s.writing }

// Send encodes the batch and writes it, in one go if the buffer takes it.
func (s *session) Send(batch []transport.Item) {
	if s.enter() {
		s.send(batch)
		s.leave()
	}
}

func (s *session) send(batch []transport.Item) {
	s.began = time.Now()
	s.t.unanswered = s.t.unanswered[:0]
	for i := range batch {
		it := &batch[i]
		o, err := s.shape(it)
		if err != nil {
			s.sink.Done(it.Tag, err)
			continue
		}
		if !s.publish(it, &o) {
			return
		}
		if o.QoS == 0 {
			s.t.unanswered = append(s.t.unanswered, it.Tag)
		}
	}
	s.flush()
}

// shape is how the message goes out, or says what is too large about it.
func (s *session) shape(it *transport.Item) (o mqttpacket.Outgoing, err error) {
	m := it.Msg
	if size := m.Size(); size > s.info.MaxSize {
		return o, wire.TooLarge(size, s.info.MaxSize)
	}
	o = mqttpacket.Outgoing{QoS: 1, Dup: it.Again, Topic: len(s.topics.Telemetry), Body: len(m.Body)}
	if s.t.opt.AtMostOnce {
		o.QoS, o.Dup = 0, false // [MQTT-3.3.1-2]
	}
	if o.Topic += wire.BagSize(m); o.Topic > wire.MaxTopic {
		return o, wire.TooLarge(o.Topic, wire.MaxTopic)
	}
	if fixed := s.t.opt.WriteBuffer; fixed > 0 && o.HeadSize() > fixed {
		return o, wire.TooLarge(o.HeadSize(), fixed)
	}
	return o, nil
}

// publish encodes one message behind those that wait. It returns false when the connection is gone.
func (s *session) publish(it *transport.Item, o *mqttpacket.Outgoing) bool {
	t, limit := s.t, s.writeLimit()
	if len(t.out) > 0 && len(t.out)+o.HeadSize() > limit && !s.flush() {
		return false
	}
	out := mqttpacket.AppendPublish(t.out, o)
	out = append(out, s.topics.Telemetry...)
	if o.Topic > len(s.topics.Telemetry) {
		out = wire.AppendBag(out, it.Msg)
	}
	if o.QoS > 0 {
		out = mqttpacket.AppendID(out, it.Tag+1)
	}
	body := it.Msg.Body
	n := max(0, min(len(body), limit-len(out)))
	t.out = append(out, body[:n]...)
	if body = body[n:]; len(body) == 0 {
		return true
	}
	if !s.flush() {
		return false
	}
	if len(body) > limit {
		return s.write(body) // what is larger than the buffer is not copied
	}
	t.out = append(t.out, body...)
	return true
}

// writeLimit is how much is put together, and the most that is written at a time, so that a slow
// link is told from a dead one.
func (s *session) writeLimit() int {
	if n := s.t.opt.WriteBuffer; n > 0 {
		return n
	}
	return fullWrite
}

// flush writes what waits, and tells of the messages that are done by it. It returns false when the
// connection is gone.
func (s *session) flush() bool {
	t := s.t
	ok := s.write(t.out)
	t.out = t.out[:0]
	if ok {
		for _, tag := range t.unanswered {
			s.sink.Done(tag, nil)
		}
	}
	t.unanswered = t.unanswered[:0]
	if t.opt.WriteBuffer == 0 && cap(t.out) > 2*fullWrite {
		t.out = nil // a long topic is over
	}
	return ok
}

// write writes p in chunks. It returns false when the connection is gone.
func (s *session) write(p []byte) bool {
	for len(p) > 0 {
		n := min(len(p), s.writeLimit())
		if _, err := s.conn.Write(p[:n]); err != nil {
			s.fail(&writeError{err})
			return false
		}
		if now := time.Now(); now.Sub(s.began) > slowWrite {
			s.began, s.slow = now, now
			_ = s.conn.SetReadDeadline(now.Add(s.t.opt.silence()))
		}
		p = p[n:]
	}
	return true
}

// Do starts one request. The answers that cannot be given are given at once.
func (s *session) Do(r *transport.Request) {
	if s.enter() {
		s.do(r)
		s.leave()
		return
	}
	s.t.opt.Calls.unsent(s, r)
}

func (s *session) do(r *transport.Request) {
	s.began = time.Now()
	switch r.Op {
	case transport.OpPing:
		s.t.out = mqttpacket.AppendPingreq(s.t.out[:0])
	case transport.OpSettle:
		// PUBACK is all that MQTT has; without one the hub delivers again.
		if r.Outcome == transport.Release || len(r.Ref) != 2 {
			return
		}
		s.t.out = mqttpacket.AppendPuback(s.t.out[:0], uint16(r.Ref[0])<<8|uint16(r.Ref[1]))
	case transport.OpTwinGet, transport.OpTwinPatch, transport.OpRespond:
		s.t.opt.Calls.ask(s, r)
		return
	case transport.OpSubscribe:
		if !s.subscribe(r) {
			return
		}
	default:
		s.refuse(r, transport.Unsupported, errLacking)
		return
	}
	s.flush()
}

var (
	errLacking     = errors.New("not available over this transport")
	errTooManySubs = errors.New("too many subscriptions under way; wait for their answers")
)

func (s *session) refuse(r *transport.Request, kind transport.Kind, cause error) {
	s.sink.Reply(r.ID, transport.Reply{Err: wire.Refused(r.Op, kind, cause)})
}

// subscribe encodes a SUBSCRIBE, or replies at once and returns false.
func (s *session) subscribe(r *transport.Request) bool {
	var wanted [wire.MaxFilters]wire.Filter
	filters := s.t.opt.Calls.filters(&s.topics, wanted[:0], r.Want)
	switch {
	case r.Want == 0:
		s.sink.Reply(r.ID, transport.Reply{})
		return false
	case len(filters) == 0:
		s.refuse(r, transport.Unsupported, errLacking)
		return false
	}
	if s.lastID++; s.lastID <= transport.MaxTags { // 65535 was the last
		s.lastID = transport.MaxTags + 1
	}
	out, err := mqttpacket.AppendSubscribe(s.t.out[:0], s.lastID, filters...)
	if err != nil { // no filter can be made from this id
		s.refuse(r, transport.Invalid, err)
		return false
	}
	if !s.await(s.lastID, r.ID, r.Want) {
		s.refuse(r, transport.Unavailable, errTooManySubs)
		return false
	}
	s.t.out = out
	return true
}

// await notes a subscription under way, before its SUBSCRIBE is written.
func (s *session) await(id uint16, req uint32, want transport.Features) (ok bool) {
	s.mu.Lock()
	for i := range s.subs {
		if s.subs[i].id == 0 {
			s.subs[i], ok = subscription{id, req, want}, true
			break
		}
	}
	s.mu.Unlock()
	return ok
}

// A writeError is the failure of a write.
type writeError struct{ err error }

func (e *writeError) Error() string {
	if wire.TimedOut(e.err) {
		return "the hub takes no data: " + e.err.Error()
	}
	return e.err.Error()
}

func (e *writeError) Unwrap() error { return e.err }
