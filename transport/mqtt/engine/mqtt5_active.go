package engine

import (
	"errors"
	"slices"
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
	case transport.OpPing:
		v.checkOwn(s)
		return false
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

// maxOwn is the most messages of the dialect that wait for their PUBACK at a time. A broker that
// takes one message at a time gets them with QoS 0.
const maxOwn = 16

// A request is one for the dialect, with what it publishes.
type request struct {
	dialect.Publication
	r  transport.Request // ID and Op; zero for what the dialect publishes by itself
	id uint16            // of its packet, while it waits for its PUBACK
	at time.Time         // when that was written
	// late: it had waited for too long at the ping before.
	late bool
	// resent: it was sent on an earlier connection, or its write failed there.
	resent bool
}

// keepAnswers holds the answers of methods that the connection before did not get acknowledged.
// They are sent once more, in case one of them has ended the connection; as new messages, because
// the peer ignores a second answer.
func (v *five) keepAnswers() {
	sent := slices.DeleteFunc(v.own, func(q request) bool { return q.r.Op != transport.OpRespond || q.resent })
	for i := range sent {
		sent[i].resent = true
	}
	v.held = append(sent, v.held...)
	v.own = nil
}

// publishRequest writes a request, or holds it until there is room.
func (v *five) publishRequest(s *session, r *transport.Request, p *dialect.Publication) {
	q := request{Publication: *p, r: transport.Request{ID: r.ID, Op: r.Op}}
	if !p.AtMostOnce && (len(v.held) > 0 || v.full(s)) {
		v.held = append(v.held, q)
		return
	}
	v.write(s, &q)
}

// write writes a request, or replies that it was not sent.
func (v *five) write(s *session, q *request) {
	if end := q.Msg.Expires; !end.IsZero() && !time.Now().Before(end) {
		s.refuse(&q.r, transport.Timeout, errNoTurn)
		return
	}
	sent, refused := v.publish(s, q)
	switch {
	case refused != nil:
		own := *refused
		own.Op = q.r.Op
		s.sink.Reply(q.r.ID, transport.Reply{Err: &own})
	case !sent && q.id == 0 && q.r.Op == transport.OpRespond && !q.resent: // with an id, keepAnswers has it
		q.resent = true
		v.held = slices.Insert(v.held, 0, *q)
	case !sent && q.id == 0:
		s.replyUnsent(&q.r)
	}
}

var errNoTurn = errors.New("its time passed before it could be sent")

// full reports whether a message must wait: for the PUBACK of another one with QoS 1, or for the
// next connection.
func (v *five) full(s *session) bool {
	s.mu.Lock()
	full := s.err != nil || v.ownWindow > 0 && len(v.own) >= v.ownWindow
	s.mu.Unlock()
	return full
}

// ownTimeout is how long a message of the dialect may wait for its PUBACK without progress of the
// connection. It has room for a slow hop.
const ownTimeout = 5 * time.Minute

var errNoPuback = errors.New("the hub did not acknowledge an answer or a request in time")

// checkOwn ends a session whose oldest message of the dialect is late at two pings: nothing could
// be published any more. After the first ping a process that was stopped has read what had come.
func (v *five) checkOwn(s *session) {
	progress, _ := s.Progress()
	s.mu.Lock()
	lost := false
	if len(v.own) > 0 {
		q := &v.own[0]
		late := time.Since(q.at) > ownTimeout && time.Since(progress) > ownTimeout
		q.late, lost = late, late && q.late
	}
	s.mu.Unlock()
	if lost {
		s.fail(errNoPuback)
	}
}

// ownAcknowledged records the PUBACK for a message of the dialect, and replies that an answer was
// refused.
func (v *five) ownAcknowledged(s *session, id uint16, refused *ReasonError) (known bool) {
	s.mu.Lock()
	i := slices.IndexFunc(v.own, func(q request) bool { return q.id == id })
	var r transport.Request
	if i >= 0 {
		r = v.own[i].r
		v.own = slices.Delete(v.own, i, i+1)
		v.wanted = true
		v.writeLocked(s)
	}
	s.mu.Unlock()
	if refused != nil && r.Op == transport.OpRespond {
		s.refuse(&r, refused.Kind(), refused)
	}
	return i >= 0
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

// publish writes one publication. sent is false when the connection has failed; the error is about
// the message alone.
func (v *five) publish(s *session, q *request) (sent bool, refused *transport.Error) {
	p := &q.Publication
	o := outgoing{Outgoing: mqttwire.Outgoing{QoS: 1, Retain: p.Retain, Topic: len(p.Topic), Body: len(p.Msg.Body)}}
	if p.AtMostOnce || v.ownWindow == 0 {
		o.QoS = 0
	}
	o, err := v.prepareBy(*p, o, time.Now)
	if err != nil {
		return false, transport.Find(err)
	}
	if fixed := s.t.opt.WriteBuffer; fixed > 0 && o.head > fixed {
		return false, mqttwire.TooLarge(o.head, o.Body, fixed)
	}
	q.id = 0
	if o.QoS > 0 {
		q.id, q.at, q.late = s.nextID(), time.Now(), false
		s.mu.Lock()
		v.own = append(v.own, *q)
		s.mu.Unlock()
	}
	s.t.out = v.appendHead(s, s.t.out[:0], q.id, *p, o)
	n := max(0, min(len(p.Msg.Body), s.writeLimit()-len(s.t.out)))
	s.t.out = append(s.t.out, p.Msg.Body[:n]...)
	return s.flush() && s.write(p.Msg.Body[n:]), nil
}

// publishOwn writes what the dialect publishes by itself, with the write side's token.
func (v *five) publishOwn(s *session) {
	d, ok := s.dialect.(dialect.Active)
	for ok && !v.full(s) {
		if len(v.held) > 0 {
			q := v.held[0]
			v.held = slices.Delete(v.held, 0, 1)
			v.write(s, &q)
			continue
		}
		p, at, more := d.Next(s.sink, time.Now())
		if !more {
			v.wakeAt(s, at)
			return
		}
		_, _ = v.publish(s, &request{Publication: p}) // it is lost, as it may be on the network
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
