package lean

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

const (
	// flushSize is how many bytes are collected before a write, when the buffer may grow.
	flushSize = 16 << 10
	// slowWrite is how long a Send or Do must have been writing, since its start or its last sign of
	// life, for the end of a write to count as a sign of life: a blocked write made progress.
	slowWrite = time.Second
)

// enter takes the write side's token. It returns false when the session has ended or is ending, or
// the token is taken.
func (s *session) enter() bool {
	select {
	case s.writing <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *session) leave() { <-s.writing }

// Send encodes the batch and writes it, in one write if the buffer is large enough.
func (s *session) Send(batch []transport.Item) {
	if s.enter() {
		s.send(batch)
		s.leave()
	}
}

func (s *session) send(batch []transport.Item) {
	s.writeBegan = time.Now()
	s.t.qos0Tags = s.t.qos0Tags[:0]
	for i := range batch {
		it := &batch[i]
		o, err := s.prepare(it)
		if err != nil {
			s.sink.Done(it.Tag, err)
			continue
		}
		if !s.publish(it, &o) {
			return
		}
		if o.QoS == 0 {
			s.t.qos0Tags = append(s.t.qos0Tags, it.Tag)
		}
	}
	s.flush()
}

// prepare returns how the message is sent, or an error that says which part is too large.
func (s *session) prepare(it *transport.Item) (o mqttpacket.Outgoing, err error) {
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

// publish appends one message to the write buffer. It returns false when the connection has failed.
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
	if body = body[n:]; len(body) > 0 && !s.flush() {
		return false
	}
	for ; len(body) > limit; body = body[limit:] { // not copied
		if !s.write(body[:limit]) {
			return false
		}
	}
	t.out = append(t.out, body...)
	if o.QoS > 0 { // the body is not read from here on, and its last bytes are not yet written
		s.mu.Lock()
		t.unacked.Add(it.Tag)
		s.mu.Unlock()
	}
	return true
}

// writeLimit is how many bytes are collected before a write, and the most in one write, so that
// progress is seen on a slow link.
func (s *session) writeLimit() int {
	if n := s.t.opt.WriteBuffer; n > 0 {
		return n
	}
	return flushSize
}

// flush writes the buffered messages, and reports those with QoS 0 as done. It returns false when
// the connection has failed.
func (s *session) flush() bool {
	t := s.t
	ok := s.write(t.out)
	t.out = t.out[:0]
	if ok {
		for _, tag := range t.qos0Tags {
			s.sink.Done(tag, nil)
		}
	}
	t.qos0Tags = t.qos0Tags[:0]
	if t.opt.WriteBuffer == 0 && cap(t.out) > 2*flushSize {
		t.out = nil // shrinks after a long topic
	}
	return ok
}

// write writes p in chunks. It returns false when the connection has failed.
func (s *session) write(p []byte) bool {
	for len(p) > 0 {
		n := min(len(p), s.writeLimit())
		if _, err := s.conn.Write(p[:n]); err != nil {
			s.fail(&writeError{err})
			return false
		}
		if now := time.Now(); now.Sub(s.writeBegan) > slowWrite {
			s.writeBegan, s.writeProgress = now, now
			_ = s.conn.SetReadDeadline(now.Add(s.t.opt.readTimeout()))
		}
		p = p[n:]
	}
	return true
}

// Do starts one request. Refused requests are answered at once.
func (s *session) Do(r *transport.Request) {
	if s.enter() {
		s.do(r)
		s.leave()
		return
	}
	s.t.opt.Calls.unsent(s, r)
}

func (s *session) do(r *transport.Request) {
	s.writeBegan = time.Now()
	switch r.Op {
	case transport.OpPing:
		s.t.out = mqttpacket.AppendPingreq(s.t.out[:0])
	case transport.OpSettle:
		// PUBACK is MQTT's only outcome; without one the hub delivers again.
		if r.Outcome == transport.Release || len(r.Ref) != 2 {
			return
		}
		s.t.out = mqttpacket.AppendPuback(s.t.out[:0], uint16(r.Ref[0])<<8|uint16(r.Ref[1]))
	case transport.OpTwinGet, transport.OpTwinPatch, transport.OpRespond:
		s.t.opt.Calls.request(s, r)
		return
	case transport.OpIssue:
		if s.t.opt.Calls.version == "" {
			s.refuse(r, transport.Unsupported, errUnsupported)
			return
		}
		s.t.opt.Calls.request(s, r)
		return
	case transport.OpSubscribe:
		if !s.subscribe(r) {
			return
		}
	default:
		s.refuse(r, transport.Unsupported, errUnsupported)
		return
	}
	s.flush()
}

var (
	errUnsupported = errors.New("not available over this transport")
	errTooManySubs = errors.New("too many subscriptions in flight; wait for their answers")
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
		s.refuse(r, transport.Unsupported, errUnsupported)
		return false
	}
	s.nextID()
	out, err := mqttpacket.AppendSubscribe(s.t.out[:0], s.lastID, filters...)
	if err != nil { // the device id makes an invalid filter
		s.refuse(r, transport.Invalid, err)
		return false
	}
	if !s.addSubscription(s.lastID, r.ID, r.Want) {
		s.refuse(r, transport.Unavailable, errTooManySubs)
		return false
	}
	s.t.out = out
	return true
}

// nextID returns the next packet id that no message has.
func (s *session) nextID() uint16 {
	if s.lastID++; s.lastID <= transport.MaxTags { // the id wrapped around
		s.lastID = transport.MaxTags + 1
	}
	return s.lastID
}

// addSubscription records a subscription before its SUBSCRIBE is written. It returns false when
// maxSubs are in flight.
func (s *session) addSubscription(id uint16, req uint32, want transport.Features) (ok bool) {
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
		return "the hub accepts no data: " + e.err.Error()
	}
	return e.err.Error()
}

func (e *writeError) Unwrap() error { return e.err }
