package engine

import (
	"cmp"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

const (
	// flushSize is how many bytes are collected before a write, when the buffer may grow.
	flushSize = 16 << 10
	// fastChunk is the same on a fast link, and the most in one write there. With flushSize, messages
	// of 20 kB and of 255 KiB have about half of the throughput.
	fastChunk = 80 << 10
	// slowWrite is how long a Send or Do must have been writing, since its start or its last sign of
	// life, for the end of a write to count as a sign of life: a blocked write made progress.
	slowWrite = time.Second
)

// enter takes the write side's token. It returns false when the session has ended or is ending.
// MQTT 3.1.1 has no other writer, so a token that is taken will not be given back.
func (s *session) enter() bool {
	if v := s.t.newer; v != nil {
		return v.enter(s)
	}
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
	if s.took(batch) && s.enter() {
		s.send(batch)
		s.giveBack()
		s.leave()
	}
}

func (s *session) send(batch []transport.Item) {
	s.writeBegan = time.Now()
	s.t.qos0Tags = s.t.qos0Tags[:0]
	for i := range batch {
		it := &batch[i]
		p, o, err := s.prepare(it)
		if err != nil {
			s.sink.Done(it.Tag, err)
			continue
		}
		if !s.publish(it.Tag, &p, &o) {
			return
		}
		if o.QoS == 0 {
			s.t.qos0Tags = append(s.t.qos0Tags, it.Tag)
		}
	}
	s.flush()
}

// outgoing is the shape of a PUBLISH. head is the size of the packet without its payload.
type outgoing struct {
	mqttwire.Outgoing
	head int
}

// prepare returns how the message is sent, or an error about it alone.
func (s *session) prepare(it *transport.Item) (p dialect.Publication, o outgoing, err error) {
	p, refused := s.dialect.Publication(it.Msg)
	if refused != nil {
		return p, o, refused
	}
	if refused := mqttwire.Fits(p.Msg, s.info.MaxSize, len(p.Topic)+p.Suffix); refused != nil {
		return p, o, refused
	}
	o.Outgoing = mqttwire.Outgoing{QoS: 1, Dup: it.Resent && s.mayHave(it.Tag), Retain: p.Retain,
		Topic: len(p.Topic) + p.Suffix, Body: len(p.Msg.Body)}
	if p.AtMostOnce || s.t.opt.AtMostOnce {
		o.QoS, o.Dup = 0, false // [MQTT-3.3.1-2]
	}
	o.head = o.HeadSize()
	if v := s.t.newer; v != nil {
		if o, err = v.prepare(s, p, o); err != nil {
			return p, o, err
		}
	}
	if fixed := s.t.opt.WriteBuffer; fixed > 0 && o.head > fixed {
		return p, o, mqttwire.Refused(transport.OpSend, transport.TooLarge, errors.New("the packet has "+
			strconv.Itoa(o.head)+" bytes before its body, and WriteBuffer has "+strconv.Itoa(fixed)+
			"; give WriteBuffer more, or send fewer or shorter properties"))
	}
	return p, o, nil
}

// publish appends one message to the write buffer. It returns false when the connection has failed.
func (s *session) publish(tag uint16, p *dialect.Publication, o *outgoing) bool {
	t := s.t
	if s.lent == nil && len(t.out)+o.head+len(p.Msg.Body) > flushSize && s.fast() {
		s.borrow()
	}
	limit := s.writeLimit()
	if len(t.out) > 0 && len(t.out)+o.head > limit && !s.flush() {
		return false
	}
	out := s.appendHead(t.out, tag+1, p, o)
	body := p.Msg.Body
	n := max(0, min(len(body), limit-len(out)))
	t.out = append(out, body[:n]...)
	if body = body[n:]; len(body) > 0 && !s.flush() {
		return false
	}
	for len(body) > limit { // not copied
		n := min((len(body)-1)/limit*limit, s.chunk()) // some bytes are left
		if !s.write(body[:n]) {
			return false
		}
		body = body[n:]
	}
	t.out = append(t.out, body...)
	if o.QoS > 0 { // the body is not read from here on, and its last bytes are not yet written
		s.wrote(tag, len(p.Msg.Body))
	}
	return true
}

// appendHead appends a PUBLISH up to its payload.
func (s *session) appendHead(dst []byte, id uint16, p *dialect.Publication, o *outgoing) []byte {
	if v := s.t.newer; v != nil {
		return v.appendHead(s, dst, id, *p, *o)
	}
	dst = append(mqttwire.AppendPublish(dst, &o.Outgoing), p.Topic...)
	if p.Suffix > 0 {
		dst = s.dialect.AppendSuffix(dst, p.Msg)
	}
	if o.QoS > 0 {
		dst = mqttwire.AppendID(dst, id)
	}
	return dst
}

// writeLimit is how many bytes are collected before a write.
func (s *session) writeLimit() int {
	switch n := s.t.opt.WriteBuffer; {
	case n > 0:
		return n
	case s.lent != nil:
		return fastChunk
	}
	return flushSize
}

// chunk is the most in one write: little, so that progress is seen, unless the connection knows
// that it is fast.
func (s *session) chunk() int {
	if s.fast() {
		return fastChunk
	}
	return cmp.Or(s.t.opt.WriteBuffer, flushSize)
}

func (s *session) fast() bool {
	if !fastLinks || s.t.opt.WriteBuffer > 0 {
		return false
	}
	c, ok := s.conn.(Faster)
	return ok && c.Fast()
}

// buffers are write buffers for fast links. A session has one while it sends.
var buffers = sync.Pool{New: func() any { return new([fastChunk]byte) }}

// borrow replaces the write buffer by a large one, until giveBack.
func (s *session) borrow() {
	s.lent, s.own = buffers.Get().(*[fastChunk]byte), s.t.out[:0]
	s.t.out = append(s.lent[:0], s.t.out...)
}

func (s *session) giveBack() {
	if s.lent != nil {
		buffers.Put(s.lent)
		s.t.out, s.lent, s.own = s.own, nil, nil
	}
}

// flush writes the buffered messages, and reports those with QoS 0 as done. It returns false when
// the connection has failed.
func (s *session) flush() bool {
	t := s.t
	ok := s.write(t.out)
	t.out = t.out[:0]
	if ok {
		for _, tag := range t.qos0Tags {
			s.sink.Done(tag, transport.ErrWritten)
		}
	}
	t.qos0Tags = t.qos0Tags[:0]
	if t.opt.WriteBuffer == 0 && s.lent == nil && cap(t.out) > 2*flushSize {
		t.out = nil // shrinks after a long topic
	}
	return ok
}

// write writes p in chunks. It returns false when the connection has failed.
func (s *session) write(p []byte) bool {
	for len(p) > 0 {
		n := min(len(p), s.chunk())
		if s.failure() != nil { // a part of a packet may have been written, and nothing may stand behind it
			return false
		}
		if _, err := s.conn.Write(p[:n]); err != nil {
			s.failWrite(&writeError{err})
			return false
		}
		if now := time.Now(); now.Sub(s.writeBegan) > slowWrite {
			s.writeBegan = now
			s.mu.Lock()
			s.writeProgress = now
			s.mu.Unlock()
			_ = s.conn.SetReadDeadline(now.Add(s.readTimeout()))
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
	s.replyUnsent(r)
}

func (s *session) do(r *transport.Request) {
	s.writeBegan = time.Now()
	if v := s.t.newer; v != nil && v.do(s, r) {
		return
	}
	switch r.Op {
	case transport.OpPing:
		s.t.out = mqttwire.AppendPingreq(s.t.out[:0])
	case transport.OpSettle:
		s.settle(r)
		return
	case transport.OpTwinGet, transport.OpTwinPatch, transport.OpRespond, transport.OpIssue:
		s.publishRequest(r)
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

// settle sends a verdict. Without a reference it says that there may be room for another message.
func (s *session) settle(r *transport.Request) {
	if len(r.Ref) >= 2 {
		s.backlog.Settled(r.Ref)
		s.t.out = s.appendSettled(s.t.out[:0], r.Ref, r.Outcome)
		s.flush()
	}
	s.backlog.Redeliver()
	if s.backlog.Over() {
		s.t.out = append(s.t.out[:0], s.goodbye(mqttwire.ErrBehind)...)
		s.flush()
		s.fail(mqttwire.ErrBehind)
	}
}

// appendSettled appends a PUBACK, MQTT's only outcome; without one the hub delivers again.
func (s *session) appendSettled(dst, ref []byte, outcome transport.Outcome) []byte {
	if v := s.t.newer; v != nil {
		return v.appendSettled(s, dst, ref, outcome)
	}
	if outcome == transport.OutcomeRelease {
		return dst
	}
	return mqttwire.AppendAck(dst, mqttwire.Puback, uint16(ref[0])<<8|uint16(ref[1]), 0)
}

var (
	errUnsupported = errors.New("not available with this dialect; cloud-to-device messages need Commands in a topic map")
	errTooManySubs = errors.New("too many subscriptions in flight; wait for their answers")
)

func (s *session) refuse(r *transport.Request, kind transport.Kind, cause error) {
	s.sink.Reply(r.ID, transport.Reply{Err: mqttwire.Refused(r.Op, kind, cause)})
}

// subscribe encodes a SUBSCRIBE, or replies at once and returns false.
func (s *session) subscribe(r *transport.Request) bool {
	filters := s.dialect.Filters(r.Want)
	switch {
	case r.Want == 0:
		s.sink.Reply(r.ID, transport.Reply{})
		return false
	case len(filters) == 0:
		s.refuse(r, transport.Unsupported, errUnsupported)
		return false
	}
	s.nextID()
	out, kind, err := s.appendSubscribe(s.t.out[:0], s.lastID, filters)
	if err != nil {
		s.refuse(r, kind, err)
		return false
	}
	if !s.addSubscription(s.lastID, r.ID, r.Want) {
		s.refuse(r, transport.Unavailable, errTooManySubs)
		return false
	}
	s.t.out = out
	return true
}

// appendSubscribe appends a SUBSCRIBE. The Kind belongs to the error.
func (s *session) appendSubscribe(dst []byte, id uint16, filters []dialect.Filter) ([]byte, transport.Kind, error) {
	if v := s.t.newer; v != nil {
		return v.appendSubscribe(dst, id, filters)
	}
	dst, err := mqttwire.AppendSubscribe(dst, id, filters...) // a device id may make an invalid filter
	return dst, transport.Invalid, err
}

// nextID returns the next packet id that no message has.
func (s *session) nextID() uint16 {
	if s.lastID++; s.lastID == lastPacketID {
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
	if mqttwire.TimedOut(e.err) {
		return "the hub accepts no data: " + e.err.Error()
	}
	return e.err.Error()
}

func (e *writeError) Unwrap() error { return e.err }
