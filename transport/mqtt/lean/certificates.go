package lean

import (
	"github.com/hubline-iot/hubline/internal/mqttpacket"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// AllCalls carries the twin, direct methods and requests for certificates, which package
// provisioning/dpsrenew makes.
var AllCalls = &Calls{filters: (*wire.Topics).AllFilters, request: (*session).publishAny, take: (*session).takeAny,
	tooLarge: (*session).tooLarge, unsent: (*session).replyUnsentAny, version: wire.APIVersionCertificates}

// publishAny writes a request for a certificate as a PUBLISH with QoS 1, and other requests as
// publishRequest does. The hub's PUBACK for it is ignored: only the answer counts.
func (s *session) publishAny(r *transport.Request) {
	if r.Op != transport.OpIssue {
		s.publishRequest(r)
		return
	}
	t := s.t
	t.topic = wire.AppendCertificateRequest(t.topic[:0], r)
	o := mqttpacket.Outgoing{QoS: 1, Topic: len(t.topic), Body: len(r.Body)}
	if fixed := t.opt.WriteBuffer; fixed > 0 && o.HeadSize() > fixed {
		e := wire.TooLarge(o.HeadSize(), fixed)
		e.Op = r.Op
		s.sink.Reply(r.ID, transport.Reply{Err: e})
		return
	}
	t.out = append(mqttpacket.AppendPublish(t.out[:0], &o), t.topic...)
	t.out = mqttpacket.AppendID(t.out, s.nextID())
	if !s.flush() || !s.write(r.Body) {
		s.replyUnsentAny(r)
	}
}

// takeAny delivers a message about certificates, the twin or a method. It returns false for other
// messages.
func (s *session) takeAny(in *mqttpacket.Incoming) bool {
	if !wire.FromHub(in.Topic) {
		return false
	}
	return s.inbound().TakeCertificate(s.sink, string(in.Topic), in.Body, in.ID, in.Dup) || s.take(in)
}

// replyUnsentAny replies that a request for a certificate, or an answer to a method, was not sent.
func (s *session) replyUnsentAny(r *transport.Request) {
	if r.Op == transport.OpIssue {
		s.refuse(r, transport.Network, errClosed)
		return
	}
	s.replyUnsent(r)
}
