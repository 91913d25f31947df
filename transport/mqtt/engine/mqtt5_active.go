package engine

import (
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// What stands here is for a dialect.Active: requests that are messages, and what the dialect
// publishes by itself. Its goroutine is that of the answers.

func (v *five) do(s *session, r *transport.Request) bool {
	if r.Op == transport.OpRenew {
		v.renew(s, r)
		return true
	}
	d, ok := s.dialect.(dialect.Active)
	if !ok {
		return false
	}
	switch r.Op {
	case transport.OpSubscribe:
		s.sink.Reply(r.ID, v.granted(s, r))
		v.publishOwn(s) // what has waited since the connection before
	case transport.OpTwinGet, transport.OpTwinPatch, transport.OpRespond:
		p, reply := d.Request(r)
		if reply != nil {
			s.sink.Reply(r.ID, *reply)
		}
		if p.Msg != nil {
			v.publishRequest(s, r, &p)
		}
		v.publishOwn(s)
	default:
		return false
	}
	return true
}

// publishRequest writes a request, or replies that it was not sent.
func (v *five) publishRequest(s *session, r *transport.Request, p *dialect.Publication) {
	sent, refused := v.publish(s, p)
	switch {
	case refused != nil:
		own := *refused
		own.Op = r.Op
		s.sink.Reply(r.ID, transport.Reply{Err: &own})
	case !sent:
		s.replyUnsent(r)
	}
}

// granted is the reply to OpSubscribe: the handshake has subscribed to all that there is.
func (v *five) granted(s *session, r *transport.Request) (reply transport.Reply) {
	if l, ok := s.t.opt.Dialect.(lacking); ok {
		for f := transport.Features(1); f != 0; f <<= 1 {
			if r.Want&f != 0 && l.Lacks(f) != "" {
				reply.Err = mqttwire.Refused(r.Op, transport.Unsupported, errUnsupported)
			}
		}
	}
	return reply
}

// publish writes one publication. A PUBACK for it is ignored. sent is false when the connection has
// failed; the error is about the message alone.
func (v *five) publish(s *session, p *dialect.Publication) (sent bool, refused *transport.Error) {
	o := outgoing{Outgoing: mqttwire.Outgoing{QoS: 1, Retain: p.Retain, Topic: len(p.Topic), Body: len(p.Msg.Body)}}
	if p.AtMostOnce {
		o.QoS = 0
	}
	o, err := v.prepare(s, *p, o)
	if err != nil {
		return false, transport.Find(err)
	}
	id := uint16(0)
	if o.QoS > 0 {
		id = s.nextID()
	}
	s.t.out = v.appendHead(s, s.t.out[:0], id, *p, o)
	n := max(0, min(len(p.Msg.Body), s.writeLimit()-len(s.t.out)))
	s.t.out = append(s.t.out, p.Msg.Body[:n]...)
	return s.flush() && s.write(p.Msg.Body[n:]), nil
}

// publishOwn writes what the dialect publishes by itself, with the write side's token.
func (v *five) publishOwn(s *session) {
	d, ok := s.dialect.(dialect.Active)
	for ok {
		p, at, more := d.Next(s.sink, time.Now())
		if !more {
			v.wakeAt(s, at)
			return
		}
		_, _ = v.publish(s, &p) // it is lost, as it may be on the network
	}
}

// wakeAt has the dialect asked again at that time, unless it is zero.
func (v *five) wakeAt(s *session, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	if v.wake != nil {
		v.wake.Stop()
		v.wake = nil
	}
	if !at.IsZero() {
		v.wake = time.AfterFunc(time.Until(at), func() {
			s.mu.Lock()
			v.wanted = true
			v.writeLocked(s)
			s.mu.Unlock()
		})
	}
}

// taken acknowledges a message for the dialect, which may have something to publish now.
func (v *five) taken(s *session, in *mqttwire.Incoming) error {
	s.mu.Lock()
	v.wanted = true
	v.writeLocked(s)
	s.mu.Unlock()
	if in.QoS == 0 {
		return nil
	}
	return v.settled(s, in, 0)
}
