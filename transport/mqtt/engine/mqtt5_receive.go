package engine

import (
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

func (v *five) next(in []byte) (h mqttwire.Header, ok bool, err error) {
	h, ok, err = mqttwire.Next5(in)
	switch {
	case err != nil:
		err = mqttwire.Violation{Err: err}
	case ok && h.Size+h.Body > v.opt.MaximumPacketSize: // [MQTT-3.1.2-24]
		broken := tooLongPacket(h)
		broken.Code = codeTooLarge
		err = broken
	}
	return h, ok && err == nil, err
}

func (v *five) handle(s *session, h mqttwire.Header, body []byte) error {
	return asViolation(v.take(s, h, body))
}

// asViolation returns an error of the codec as a violation, and any other as it is.
func asViolation(err error) error {
	if e, ok := err.(mqttwire.Error); ok {
		return mqttwire.Violation{Err: e}
	}
	return err
}

// take processes one packet. Errors of the codec are violations.
func (v *five) take(s *session, h mqttwire.Header, body []byte) error {
	switch h.Type {
	case mqttwire.Publish:
		return s.backlog.Incoming(h.Flags, body)
	case mqttwire.Puback:
		a, err := mqttwire.ReadAck(h.Type, body)
		if err != nil {
			return err
		}
		return v.puback(s, &a)
	case mqttwire.Pubrel:
		a, err := mqttwire.ReadAck(h.Type, body)
		if err != nil {
			return err
		}
		return v.pubrel(s, &a)
	case mqttwire.Suback:
		c, err := mqttwire.ReadCodes(h.Type, body)
		if err != nil {
			return err
		}
		return v.suback(s, &c)
	case mqttwire.Pingresp:
		return mqttwire.ReadEmpty(body)
	case mqttwire.Disconnect:
		r, err := mqttwire.ReadReason(h.Type, body)
		if err != nil {
			return err
		}
		return mqttwire.Ended(v.refusedBy(mqttwire.PacketDisconnect, r.Code, r.Properties))
	case mqttwire.Auth:
		r, err := mqttwire.ReadReason(h.Type, body)
		if err != nil {
			return err
		}
		return v.authReceived(s, &r)
	case mqttwire.Connack:
		return mqttwire.NewViolation("the broker sent a second CONNACK") // [MQTT-3.2.0-2]
	default:
		return mqttwire.NewViolation("the broker sent a packet of type " + strconv.Itoa(int(h.Type)) +
			", which was not expected")
	}
}

// puback reports the message as done, or as refused.
func (v *five) puback(s *session, a *mqttwire.Ack) error {
	tag := a.ID - 1
	var refused *ReasonError
	if !mqttwire.Accepted(a.Reason) {
		refused = v.refusedBy(mqttwire.PacketPuback, a.Reason, a.Properties)
	}
	ours := s.answeredMessage(tag) // a refusal acknowledges it, too: [MQTT-4.4.0-2]
	switch {
	case ours && refused == nil:
		s.sink.Done(tag, nil)
	case ours:
		s.sink.Done(tag, mqttwire.Refused(transport.OpSend, refused.Kind(), refused))
	case v.ownAcknowledged(s, a.ID, refused):
	default:
		return s.acknowledged(a.ID)
	}
	return nil
}

// suback replies to the OpSubscribe.
func (v *five) suback(s *session, c *mqttwire.Codes) error {
	sub, filters, err := s.answered(c.ID, len(c.Reasons))
	if err != nil {
		return err
	}
	var reply transport.Reply
	for i, code := range c.Reasons {
		if !mqttwire.Granted(code) {
			e := v.refusedBy(mqttwire.PacketSuback, code, c.Properties)
			e.Filter = filters[i].Topic
			reply.Err = mqttwire.Refused(transport.OpSubscribe, e.Kind(), e)
			break
		}
	}
	return s.subscribedTo(sub, reply)
}

// onceRef is the size of the reference of a message with QoS 2, valid on later connections: the
// packet id, and which session of the broker it belongs to.
const onceRef = 4

// pass passes a PUBLISH on. One with QoS 2 is delivered until its PUBREC was sent, and again only
// in a new session of the broker.
func (v *five) pass(s *session, to *mqttwire.Tap, flags byte, body []byte, fresh bool, waited time.Duration) error {
	in, done, err := v.readPublish(s, flags, body, fresh)
	if err != nil || done {
		return err
	}
	d := s.delivery(&in)
	readProperties(d.Msg, in.Properties)
	if fresh {
		waited = s.waited
	}
	if !d.Msg.Expires.IsZero() {
		d.Msg.Expires = d.Msg.Expires.Add(-waited)
	}
	if in.QoS == 2 {
		d.Once = true
		v.ref = [onceRef]byte{byte(in.ID >> 8), byte(in.ID), byte(v.generation >> 8), byte(v.generation)}
		d.Ref = v.ref[:]
	}
	if mqttwire.ValidTopic(in.Topic) {
		s.dialect.Take(to, in.Topic, d)
	}
	if _, active := s.dialect.(dialect.Active); active {
		return v.taken(s, &in)
	}
	if to.Called {
		return nil
	}
	if d.Ref != nil {
		d.Ref, d.Once = d.Ref[:0], false // it is only reported
	}
	mqttwire.Unasked(to, in.Topic, d)
	if in.QoS > 0 {
		return v.settled(s, &in, notForUs)
	}
	return nil
}

// readPublish reads a PUBLISH, and notes its id if it is fresh. done is true if it was received
// before.
func (v *five) readPublish(s *session, flags byte, body []byte, fresh bool) (in mqttwire.Incoming, done bool,
	err error) {
	if in, err = mqttwire.ReadPublish5(flags, body); err != nil {
		return in, false, err
	}
	if _, ok := in.Properties.Number(mqttwire.TopicAlias); ok { // [MQTT-3.3.2-9]
		return in, false, violation(codeAlias, "the broker sent a topic alias, and none are allowed")
	}
	if fresh && in.QoS > 0 {
		done, err = v.note(s, &in)
	}
	return in, done, err
}

// settled settles a message for which nobody will: one for the dialect alone, or one on a topic
// without a subscription, such as an earlier program of the device had. It would hold its place
// among the messages without a verdict for ever.
func (v *five) settled(s *session, in *mqttwire.Incoming, reason byte) error {
	s.mu.Lock()
	if v.unsettled.Remove(in.ID) {
		v.waiting--
	}
	s.mu.Unlock()
	if in.QoS == 2 {
		return v.answer(s, mqttwire.Pubrec, in.ID, reason)
	}
	return v.answer(s, mqttwire.Puback, in.ID, reason)
}

// notForUs is the reason code "implementation specific error".
const notForUs = 0x83

// note records the id of a message with QoS 1 or 2. done is true if the message was received
// before. Brokers send more than the receive maximum: mosquitto 2.0.11 does. The backlog has room.
func (v *five) note(s *session, in *mqttwire.Incoming) (done bool, err error) {
	id := in.ID
	s.mu.Lock()
	redelivered := in.QoS == 2 && v.received.Has(id)
	if !redelivered && !v.unsettled.Has(id) {
		v.exceeded = v.exceeded || v.waiting+v.pending >= v.receiveMaximum
		v.unsettled.Add(id)
		v.waiting++
	}
	s.mu.Unlock()
	if redelivered {
		return true, v.answer(s, mqttwire.Pubrec, id, 0)
	}
	return false, nil
}

// pubrel ends the exchange about a message with QoS 2.
func (v *five) pubrel(s *session, a *mqttwire.Ack) error {
	s.mu.Lock()
	known := v.received.Remove(a.ID)
	if known {
		v.pending = max(0, v.pending-1) // 0 when it came on an earlier connection
	}
	s.mu.Unlock()
	reason := byte(0)
	if !known {
		reason = unknownID
	}
	return v.answer(s, mqttwire.Pubcomp, a.ID, reason)
}

// unknownID is the reason code "packet identifier not found".
const unknownID = 0x92

// maxControl bounds the answers that wait to be written. Where buffers do not grow, a broker has
// receiveMaximum exchanges under way with two answers each. Otherwise there is room for one that
// sends more at once.
func (v *five) maxControl() int {
	n := 64 + 2*ackSize*v.receiveMaximum
	if v.all.WriteBuffer == 0 {
		n = max(n, 64<<10)
	}
	return n
}

const (
	ackSize = 5
	// keptControl is the most memory that is kept for the next answers.
	keptControl = 1 << 10
)

// answer sends a PUBREC or PUBCOMP from the goroutine that reads, which must not write: another
// goroutine does, as long as there are answers.
func (v *five) answer(s *session, t mqttwire.Type, id uint16, reason byte) error {
	s.mu.Lock()
	full := len(v.control)+ackSize > v.maxControl()
	if !full {
		v.control = mqttwire.AppendAck(v.control, t, id, reason)
		v.writeLocked(s)
	}
	s.mu.Unlock()
	if full {
		return mqttwire.NewViolation("the broker sends PUBREL or PUBLISH and reads no answers")
	}
	return nil
}

// writeLocked starts the goroutine that writes answers, unless it runs or the session has failed.
func (v *five) writeLocked(s *session) {
	if !v.controlling && s.err == nil {
		v.controlling = true
		v.help(func() { v.writeAnswers(s) })
	}
}

// writeAnswers writes answers until there are none.
func (v *five) writeAnswers(s *session) {
	for s.enter() {
		s.mu.Lock()
		answers := append(s.t.out[:0], v.control...)
		if v.control = v.control[:0]; cap(v.control) > keptControl {
			v.control = nil
		}
		wanted := v.wanted
		v.wanted, v.controlling = false, len(answers) > 0 || v.wanted
		more := v.controlling
		s.mu.Unlock()
		s.t.out, s.writeBegan = answers, time.Now()
		if len(answers) > 0 {
			s.flush()
		}
		if wanted {
			v.publishOwn(s)
		}
		s.leave()
		if !more {
			return
		}
	}
}

// help runs f on a goroutine that end waits for.
func (v *five) help(f func()) {
	v.helpers.Add(1)
	go func() {
		f()
		v.helpers.Done()
	}()
}

func (v *five) enter(s *session) bool {
	select {
	case s.writing <- struct{}{}:
		return true
	case <-v.over:
		return false
	}
}

func (v *five) end(err error) error {
	close(v.over)
	for _, t := range [...]*time.Timer{v.ending, v.wake} { // not set after the session's failure
		if t != nil {
			t.Stop()
		}
	}
	v.life.End()
	v.helpers.Wait()
	if transport.Find(err) != nil { // the broker said why
		return err
	}
	return nil
}

var _ version = (*five)(nil)
