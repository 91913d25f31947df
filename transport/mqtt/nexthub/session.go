package nexthub

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// Filters has none: the handshake has subscribed to all.
func (s *session) Filters(transport.Features) []dialect.Filter { return nil }

// AppendRequest has none: requests are messages.
func (s *session) AppendRequest(dst []byte, _ *transport.Request) ([]byte, byte, bool) {
	return dst, 0, false
}

// Take passes on messages about the twin and methods. Others are ignored: unknown features, and
// birth-acks of earlier connections.
func (s *session) Take(sink transport.Sink, topic []byte, d *transport.Delivery) {
	d.Ref = nil
	switch string(topic) {
	case nextwire.Down(s.id, nextwire.FeatureTwin):
		s.mu.Lock()
		r := s.twin.take(d)
		if r.send != nil {
			s.out = append(s.out, s.request(r.send))
		}
		s.mu.Unlock()
		s.report(sink, r, d)
	case nextwire.Down(s.id, nextwire.FeatureMethods):
		s.takeMethod(sink, d)
	}
}

// report passes on what a message about the twin means.
func (s *session) report(sink transport.Sink, r report, d *transport.Delivery) {
	if r.deliver {
		sink.Deliver(d)
	}
	if r.pushed {
		s.mu.Lock()
		id, reply := s.twin.delivered()
		s.mu.Unlock()
		if id != 0 {
			sink.Reply(id, reply)
		}
	}
	if r.reply != nil {
		sink.Reply(r.id, *r.reply)
	}
}

// Missed is for engines with a fixed buffer over MQTT 3.1.1: over MQTT 5 the hub does not send what
// is larger than the buffer.
func (s *session) Missed(transport.Sink, []byte, *transport.Delivery, int, int) {}

// takeMethod ignores messages of unknown types, and malformed ones.
func (s *session) takeMethod(sink transport.Sink, d *transport.Delivery) {
	id, ok := nextwire.ParseID(d.Msg.CorrelationID)
	if !ok {
		return
	}
	switch typeOf(d.Msg) {
	case nextwire.TypeProbe:
		var p nextwire.Probe
		if nextwire.Decode(d.Msg.Body, &p) == nil {
			s.probe(sink, id, &p, d)
		}
	case nextwire.TypeExec:
		var e nextwire.Exec
		if nextwire.Decode(d.Msg.Body, &e) == nil {
			s.exec(sink, id, &e, d)
		}
	}
}

// probe answers a probe, after asking the application.
func (s *session) probe(sink transport.Sink, id nextwire.ID, p *nextwire.Probe, d *transport.Delivery) {
	s.mu.Lock()
	known, reason := s.methods.knows(id), s.methods.judge(p)
	s.mu.Unlock()
	if known {
		return
	}
	declined := false
	if reason == 0 {
		kind := transport.Unknown
		d.Kind, d.Name, d.Probe = transport.FeatureMethods, []byte(p.Method), &kind
		declined = !sink.Deliver(d)
		switch {
		case !declined:
		case kind == transport.Throttled:
			reason = nextwire.RejectDeviceBusy
		default: // also without any handler
			reason = nextwire.RejectMethodNotFound
		}
	}
	s.mu.Lock()
	o := s.methods.probe(time.Now(), id, p, d.Msg.Expires, reason)
	s.send(o)
	s.mu.Unlock()
	if !declined {
		o.tell(sink)
	}
}

// exec has the application run a method.
func (s *session) exec(sink transport.Sink, id nextwire.ID, e *nextwire.Exec, d *transport.Delivery) {
	s.mu.Lock()
	o := s.methods.exec(time.Now(), id, e, d.Msg.Expires)
	s.send(o)
	s.mu.Unlock()
	if !o.run {
		o.tell(sink)
		return
	}
	d.Kind, d.Name, d.Ref, d.Once = transport.FeatureMethods, []byte(o.method), id[:], true
	d.Msg.Body = e.Params
	if !sink.Deliver(d) {
		s.mu.Lock()
		s.methods.drop(id)
		s.mu.Unlock()
	}
}

func (s *session) request(m *transport.Message) dialect.Publication {
	return dialect.Publication{Msg: m, Topic: nextwire.Up(s.id, nextwire.FeatureTwin), AtMostOnce: true}
}

// maxOut bounds the messages that wait for a hub that reads nothing. Further ones are lost.
const maxOut = 64

// send queues the message of an outcome. mu is held.
func (s *session) send(o outcome) {
	if o.send != nil && len(s.out) < maxOut {
		s.out = append(s.out, s.method(o.send))
	}
}

func (s *session) method(m *transport.Message) dialect.Publication {
	return dialect.Publication{Msg: m, Topic: nextwire.Up(s.id, nextwire.FeatureMethods)}
}

// tell reports what the application does not see otherwise.
func (o *outcome) tell(sink transport.Sink) {
	if o.event != 0 {
		sink.Deliver(&transport.Delivery{Kind: transport.FeatureMethods, Name: []byte(o.method), Probe: &o.event})
	}
}

// Next returns an answer to a probe, or gives up a method whose time has passed.
func (s *session) Next(sink transport.Sink, now time.Time) (p dialect.Publication, at time.Time, ok bool) {
	s.mu.Lock()
	var o outcome
	if len(s.out) == 0 {
		o, at = s.methods.next(now)
		s.send(o)
	}
	if ok = len(s.out) > 0; ok {
		p, s.out = s.out[0], s.out[1:]
	}
	s.mu.Unlock()
	o.tell(sink)
	return p, at, ok
}

var errRef = errors.New("the call has no reference of this hub")

// Request returns the message for a request about the twin, or for the answer of a method.
func (s *session) Request(r *transport.Request) (dialect.Publication, *transport.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Op != transport.OpRespond {
		m, reply := s.twin.request(r)
		return s.request(m), reply
	}
	id, ok := nextwire.ParseID(string(r.Ref))
	m, err := (*transport.Message)(nil), errRef
	if ok {
		m, err = s.methods.result(time.Now(), id, int32(r.Status), r.Body)
	}
	if err != nil {
		return dialect.Publication{}, &transport.Reply{Err: mqttwire.Refused(r.Op, transport.Timeout, err)}
	}
	return s.method(m), nil
}
