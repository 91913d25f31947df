package engine

import (
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

// publishRequest writes a request for the twin or for a certificate, or an answer to a method, as a
// PUBLISH. A PUBACK for it is ignored: only the answer counts.
func (s *session) publishRequest(r *transport.Request) {
	t := s.t
	topic, qos, ok := s.dialect.AppendRequest(t.topic[:0], r)
	if !ok {
		s.refuse(r, transport.Unsupported, errUnsupported)
		return
	}
	t.topic = topic
	o := mqttwire.Outgoing{QoS: qos, Topic: len(topic), Body: len(r.Body)}
	size, limit := len(r.Body), s.info.MaxSize
	if fixed := t.opt.WriteBuffer; fixed > 0 && o.HeadSize() > fixed {
		size, limit = o.HeadSize(), fixed
	}
	if size > limit || o.Topic > mqttwire.MaxText {
		e := mqttwire.TooLarge(size, len(r.Body), limit)
		e.Op = r.Op
		s.sink.Reply(r.ID, transport.Reply{Err: e})
		return
	}
	t.out = append(mqttwire.AppendPublish(t.out[:0], &o), topic...)
	if qos > 0 {
		t.out = mqttwire.AppendID(t.out, s.nextID())
	}
	n := max(0, min(len(r.Body), s.writeLimit()-len(t.out)))
	t.out = append(t.out, r.Body[:n]...)
	if !s.flush() || !s.write(r.Body[n:]) {
		s.replyUnsent(r)
	}
}

// replyUnsent replies that a request for a certificate, or an answer to a method, was not sent, and
// records a verdict that counts on the next connection. Other requests are repeated by the client
// there.
func (s *session) replyUnsent(r *transport.Request) {
	if r.Op == transport.OpRespond || r.Op == transport.OpIssue {
		s.refuse(r, transport.Network, errClosed)
	}
	if v := s.t.newer; v != nil && r.Op == transport.OpSettle && len(r.Ref) == onceRef {
		v.appendSettled(s, nil, r.Ref, r.Outcome)
	}
}
