package paho

import (
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"github.com/hubline-iot/hubline/internal/mqttwire"
)

// received is called by paho for each PUBLISH, in order, on its routing goroutine.
func (s *session) received(_ paho.Client, m paho.Message) {
	o := mqttwire.Outgoing{QoS: m.Qos(), Dup: m.Duplicate(), Retain: m.Retained(), Topic: len(m.Topic()),
		Body: len(m.Payload())}
	s.in = append(mqttwire.AppendPublish(s.in[:0], &o), m.Topic()...)
	if o.QoS > 0 {
		s.in = mqttwire.AppendID(s.in, m.MessageID())
	}
	s.in = append(s.in, m.Payload()...)
	h, _, _ := mqttwire.Next(s.in)
	s.routed++
	var err error
	if size := s.guard.skipped(s.routed); size > 0 {
		err = s.backlog.Missed(h.Flags, s.in[h.Size:], size)
	} else {
		err = s.backlog.Incoming(h.Flags, s.in[h.Size:])
	}
	if err != nil {
		s.leave(err)
	}
	if cap(s.in) > keptPacket {
		s.in = nil
	}
}

// pass passes a PUBLISH to the dialect. It is mqttwire.Backlog.Pass.
func (s *session) pass(to *mqttwire.Tap, flags byte, body []byte, _ bool, _ time.Duration) error {
	in, err := mqttwire.ReadPublish(flags, body)
	if err != nil {
		return err
	}
	size := mqttwire.MissedSize(flags, in.Body)
	if size > 0 {
		in.Body = nil
	}
	d := s.message.Delivery(in.Body, in.ID, in.Retain, in.Dup)
	switch valid := mqttwire.ValidTopic(in.Topic); {
	case valid && size > 0:
		s.dialect.Missed(to, in.Topic, d, size, maxIncoming)
		return nil
	case valid:
		s.dialect.Take(to, in.Topic, d)
	}
	mqttwire.Unasked(to, in.Topic, d)
	return nil
}

// room says that there may be room for a message. It ends a session that brings no further ones.
func (s *session) room() {
	s.backlog.Redeliver()
	if s.backlog.Over() {
		s.leave(mqttwire.ErrBehind)
	}
}

// leave ends the session with a DISCONNECT, else the peer would publish the will.
func (s *session) leave(err error) {
	_, _ = s.guard.Write(mqttwire.AppendDisconnect(nil))
	s.guard.fail(err)
}
