package lean

import (
	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// Calls says whether sessions carry the twin, direct methods and requests for certificates. It is a
// value and not a switch so that a linker drops what a board's program does not use.
type Calls struct {
	filters  func(t *wire.Topics, dst []wire.Filter, want transport.Features) []wire.Filter
	request  func(s *session, r *transport.Request)
	take     func(s *session, in *mqttpacket.Incoming) bool
	tooLarge func(s *session, h mqttpacket.Header, body []byte, size int)
	unsent   func(s *session, r *transport.Request)
	version  string // of the API with requests for certificates; empty: none are carried
}

var (
	// TwinAndMethods carries these two. It costs a board's program about 5 KB of flash.
	TwinAndMethods = &Calls{filters: (*wire.Topics).Filters, request: (*session).publishRequest, take: (*session).take,
		tooLarge: (*session).tooLarge, unsent: (*session).replyUnsent}
	// NoCalls carries nothing: twin requests, and subscriptions to twin changes and methods, are
	// answered with Unsupported.
	NoCalls = &Calls{
		filters: messagesOnly,
		request: func(s *session, r *transport.Request) {
			if r.Op != transport.OpRespond {
				s.refuse(r, transport.Unsupported, errUnsupported)
			}
		},
		take:     func(*session, *mqttpacket.Incoming) bool { return false },
		tooLarge: func(*session, mqttpacket.Header, []byte, int) {},
		unsent:   func(*session, *transport.Request) {},
	}
)

func messagesOnly(t *wire.Topics, dst []wire.Filter, want transport.Features) []wire.Filter {
	if want == transport.Messages {
		dst = append(dst, wire.Filter{Topic: t.Messages, QoS: 1})
	}
	return dst
}

// publishRequest writes a request for the twin, or an answer to a method, as a PUBLISH with QoS 0.
func (s *session) publishRequest(r *transport.Request) {
	t := s.t
	t.topic, _ = wire.AppendRequest(t.topic[:0], r)
	o := mqttpacket.Outgoing{Topic: len(t.topic), Body: len(r.Body)}
	size, limit := len(r.Body), s.info.MaxSize
	if fixed := t.opt.WriteBuffer; fixed > 0 && o.HeadSize() > fixed {
		size, limit = o.HeadSize(), fixed
	}
	if size > limit || o.Topic > wire.MaxTopic {
		e := wire.TooLarge(size, limit)
		e.Op = r.Op
		s.sink.Reply(r.ID, transport.Reply{Err: e})
		return
	}
	t.out = append(mqttpacket.AppendPublish(t.out[:0], &o), t.topic...)
	n := max(0, min(len(r.Body), s.writeLimit()-len(t.out)))
	t.out = append(t.out, r.Body[:n]...)
	if !s.flush() || !s.write(r.Body[n:]) {
		s.replyUnsent(r)
	}
}

// replyUnsent replies that an answer to a method was not sent. Other requests are repeated by the
// client on the next connection.
func (s *session) replyUnsent(r *transport.Request) {
	if r.Op == transport.OpRespond {
		s.refuse(r, transport.Network, errClosed)
	}
}

// take delivers a message about the twin or a method. It returns false for other messages.
func (s *session) take(in *mqttpacket.Incoming) bool {
	if !wire.FromHub(in.Topic) {
		return false
	}
	s.inbound().Take(s.sink, string(in.Topic), in.Body)
	return true
}

// tooLarge replies TooLarge for a twin that does not fit into the read buffer, and reports a twin
// change or method call that did not fit as missed. body is the beginning of the packet's body.
func (s *session) tooLarge(h mqttpacket.Header, body []byte, size int) {
	if in, err := mqttpacket.ReadPublish(h.Flags, body); err == nil && wire.FromHub(in.Topic) {
		if id, r, ok := wire.AnswerTooLarge(string(in.Topic), size, s.t.opt.ReadBuffer); ok {
			s.sink.Reply(id, r)
		}
		s.inbound().Missed(s.sink, string(in.Topic))
	}
}
