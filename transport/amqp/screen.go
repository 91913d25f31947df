package amqp

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// screen decides which frames of the peer go on to the library. The library (go-amqp 1.7) decodes
// with few checks, on goroutines that nobody can recover. A frame of a peer can make it panic, loop
// or keep memory for ever. So the screen checks each frame whole, and against the frames before it
// in both directions. Frames that are safe for the library go on, some of them rewritten. Any other
// frame is a violation, which ends the connection.
type screen struct {
	// sessions is how many the peer allows; 0 before its open. It may be read from anywhere.
	sessions atomic.Int32
	ended    int // sessions that the peer has ended and the library has not; of the reading goroutine

	phase phase // of the reading goroutine

	mu     sync.Mutex // guards what follows; held for memory only
	local  map[uint16]*half
	remote map[uint16]*half
	parts  int // bytes of messages of which more is to come
}

// phase is what the peer may send next.
type phase uint8

const (
	atHeader     phase = iota // a protocol header
	atMechanisms              // of SASL
	atOutcome                 // of SASL
	atOpen
	running
	closed // nothing that counts
)

const (
	// maxMessage is the size of the largest message in several frames. The library has no limit.
	maxMessage = 16 << 20
	// maxParts is how many bytes of incomplete messages a connection keeps.
	maxParts = 2 * maxMessage
	// minIdle is the shortest idle time-out of a peer that the library sees. It writes a frame
	// every half of it.
	minIdle = time.Second
	// maxFlows is how many flows a peer may send for a link within flowTime while this side sends
	// nothing on it. The library keeps all flows of a link that it has given up.
	maxFlows = 10_000
	flowTime = time.Hour
	// maxUnsettledRange is how many deliveries a disposition that asks for an answer may name. The
	// library walks the whole range once for each of them.
	maxUnsettledRange = 1024
)

// half is the state of a session of AMQP that its frames show, in both directions.
type half struct {
	channel   uint16 // of this side
	begun     bool   // by the peer
	transfers uint32 // frames that were sent: the next transfer-id
	out, in   deliveries
	links     []*halfLink
}

// halfLink is the state of a link that its frames show.
type halfLink struct {
	name     string
	handle   uint32 // of this side
	peer     uint32 // the peer's handle
	receives bool   // this side does
	attached bool   // by the peer
	refused  bool   // by the peer: only a detach may follow

	// Where this side sends.
	sent          uint32 // messages
	count, credit uint32 // delivery-count and link-credit that the peer sent last

	// Where this side receives.
	limit    uint32 // the delivery-count at which the peer has no credit left
	received uint32 // the peer's delivery-count
	most     uint64 // bytes of a message
	part     *part  // the incomplete message; nil: none

	flows int       // that came, since the last frame that was sent
	since time.Time // of the first of them
}

// part is the beginning of a message.
type part struct {
	id      uint32
	settled bool
	payload []byte
}

// frame checks a frame. It returns b itself if it may go on, a frame in its place, or nothing.
func (s *screen) frame(b []byte) ([]byte, error) {
	if s.phase == closed {
		return nil, nil
	}
	head := int(b[4]) * 4
	if head < wire.HeaderSize || head > len(b) {
		return nil, s.violated("frame", "data offset", fmt.Sprintf("%d of %d bytes", head, len(b)))
	}
	want := wire.FrameAMQP
	if s.phase == atMechanisms || s.phase == atOutcome {
		want = wire.FrameSASL
	}
	switch {
	case b[5] != want:
		return nil, s.violated("frame", "type", fmt.Sprintf("%d, not %d", b[5], want))
	case head == len(b):
		return nil, nil // a keep-alive: the library keeps its bytes until another frame comes
	}
	body := b[head:]
	w := wire.NewWalker(body, maxItems)
	code, fields, count, err := w.Open()
	if err != nil {
		return nil, s.violated("frame", "performative", reason(err))
	}
	var c *composite
	for _, p := range performatives {
		if p.code == code {
			c = p
		}
	}
	if c == nil || !s.phase.takes(code) {
		return nil, s.violated("frame", "performative", fmt.Sprintf("0x%02x, which cannot come here", code))
	}
	f := inFrame{composite: c, channel: binary.BigEndian.Uint16(b[6:]), body: body, fields: count, payload: w.Rest()}
	if bad := c.check(&fields, count, body[:len(body)-len(w.Rest())], f.all[:]); bad != nil {
		bad.early = s.phase < running
		return nil, bad
	}
	if code != codeTransfer && len(w.Rest()) > 0 {
		return nil, s.violated(c.name, "", fmt.Sprintf("%d bytes behind it", len(w.Rest())))
	}
	pass, bad := s.take(&f)
	switch {
	case bad != nil:
		bad.early = s.phase < running
		return nil, bad
	case !pass:
		return nil, nil
	case f.changed != 0:
		return f.rewritten(), nil
	case head > wire.HeaderSize || body[1] != 0x53: // the library knows neither extended headers nor long descriptors
		return f.rewritten(), nil
	}
	return b, nil
}

func (s *screen) violated(frame, field, why string) *violation {
	return &violation{frame: frame, field: field, why: why, early: s.phase < running}
}

// takes reports whether a performative may come.
func (p phase) takes(code uint64) bool {
	switch p {
	case atMechanisms:
		return code == codeMechanisms
	case atOutcome:
		return code == codeOutcome
	case atOpen:
		return code == codeOpen
	case running:
		return code > codeOpen && code <= codeClose
	}
	return false
}

// header notes a protocol header. The library checks it.
func (s *screen) header(id byte) {
	s.phase = atOpen
	if id == wire.ProtocolSASL {
		s.phase = atMechanisms
	}
}

// inFrame is a frame that was checked.
type inFrame struct {
	*composite
	channel uint16
	body    []byte
	all     [maxFields]item
	fields  int // that came
	payload []byte

	changed uint16 // a bit for each field that is replaced: by true for a boolean, else by the number in all
}

// null reports whether a field is null, or did not come.
func (f *inFrame) null(i int) bool { return f.all[i].is == wire.IsNull }

// uint32 is the number in a field, 0 for none.
func (f *inFrame) uint32(i int) uint32 { return uint32(f.all[i].number) }

// truth is the boolean in a field, false for none.
func (f *inFrame) truth(i int) bool { return f.all[i].number != 0 }

// text is the text in a field.
func (f *inFrame) text(i int) []byte {
	raw := f.body[f.all[i].start:f.all[i].end]
	if raw[0]&0x10 != 0 { // four bytes of length
		return raw[5:]
	}
	return raw[2:]
}

// set replaces a field by a number of the field's type, or by true.
func (f *inFrame) set(i int, number uint32) {
	f.all[i].number = uint64(number)
	f.changed |= 1 << i
	f.fields = max(f.fields, i+1)
}

// rewritten returns the frame with the replaced fields.
func (f *inFrame) rewritten() []byte {
	b := make([]byte, 0, len(f.body)+64)
	b = append(b, 0, 0, 0, 0, 2, wire.FrameAMQP, byte(f.channel>>8), byte(f.channel))
	b = append(b, 0, 0x53, byte(f.code), 0xd0, 0, 0, 0, 0, 0, 0, 0, byte(f.fields))
	if f.code >= codeMechanisms {
		b[5] = wire.FrameSASL
	}
	const list = 12
	for i := range f.fields {
		v := &f.all[i]
		switch {
		case f.changed&(1<<i) == 0 && v.start < v.end:
			b = append(b, f.body[v.start:v.end]...)
		case f.changed&(1<<i) == 0:
			b = append(b, 0x40)
		case f.composite.fields[i].is == wire.IsBoolean:
			b = append(b, 0x41)
		case f.composite.fields[i].is == wire.IsUbyte:
			b = append(b, 0x50, byte(v.number))
		default:
			b = binary.BigEndian.AppendUint32(append(b, 0x70), uint32(v.number))
		}
	}
	binary.BigEndian.PutUint32(b[list:], uint32(len(b)-list-4))
	b = append(b, f.payload...)
	binary.BigEndian.PutUint32(b, uint32(len(b)))
	return b
}

// bad returns a violation by a field of f.
func (f *inFrame) bad(i int, format string, args ...any) *violation {
	return &violation{frame: f.name, field: f.composite.fields[i].name, why: fmt.Sprintf(format, args...)}
}

// take checks a frame against the frames before it. pass: it goes on to the library.
func (s *screen) take(f *inFrame) (pass bool, bad *violation) {
	switch f.code {
	case codeMechanisms:
		s.phase = atOutcome
		return true, nil
	case codeOutcome:
		s.phase = atHeader
		return true, nil
	case codeOpen:
		s.open(f)
		return true, nil
	case codeClose:
		s.phase = closed
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.code == codeBegin {
		return true, s.beginLocked(f)
	}
	h := s.remote[f.channel]
	if h == nil {
		return false, &violation{frame: f.name, why: fmt.Sprintf("channel %d has no session", f.channel)}
	}
	switch f.code {
	case codeEnd:
		s.endLocked(f.channel, h)
		return true, nil
	case codeAttach:
		return true, h.attach(f)
	case codeFlow:
		return true, h.flow(f)
	case codeTransfer:
		return true, s.transferLocked(h, f)
	case codeDisposition:
		return h.disposition(f)
	}
	return true, s.detachLocked(h, f)
}

// open notes an open.
func (s *screen) open(f *inFrame) {
	const channelMax, idleTimeout = 3, 4
	highest := uint32(math.MaxUint16)
	if !f.null(channelMax) {
		highest = f.uint32(channelMax)
	}
	s.sessions.Store(int32(highest) + 1)
	if limit := uint32(minIdle / time.Millisecond); f.uint32(idleTimeout) > 0 && f.uint32(idleTimeout) < limit {
		f.set(idleTimeout, limit)
	}
	s.phase = running
}

func (s *screen) beginLocked(f *inFrame) *violation {
	const remoteChannel = 0
	h := s.local[uint16(f.uint32(remoteChannel))]
	switch {
	case h == nil || h.begun:
		return f.bad(remoteChannel, "%d, on which no session is being begun", f.uint32(remoteChannel))
	case s.remote[f.channel] != nil:
		return &violation{frame: f.name, why: fmt.Sprintf("channel %d has a session", f.channel)}
	}
	h.begun = true
	if s.remote == nil {
		s.remote = make(map[uint16]*half)
	}
	s.remote[f.channel] = h
	return nil
}

func (s *screen) endLocked(channel uint16, h *half) {
	delete(s.remote, channel)
	if s.local[h.channel] == h {
		delete(s.local, h.channel)
	}
	for _, l := range h.links {
		s.dropPartLocked(l)
	}
	s.ended++
}

// dropPartLocked forgets the incomplete message of a link.
func (s *screen) dropPartLocked(l *halfLink) {
	if l.part != nil {
		s.parts -= len(l.part.payload)
		l.part = nil
	}
}

// byPeer finds a link by the peer's handle, nil if there is none.
func (h *half) byPeer(handle uint32) *halfLink {
	for _, l := range h.links {
		if l.attached && l.peer == handle {
			return l
		}
	}
	return nil
}

// attach notes an attach. The receiver decides when it settles [2.6.12, 2.7.3], and this side
// settles with its first disposition. A library that is told otherwise by the sender waits for its
// answer to each disposition, for ever, and keeps the numbers of aborted deliveries.
func (h *half) attach(f *inFrame) *violation {
	const first = 0
	const name, handle, role, settleMode, source, target, initialCount = 0, 1, 2, 4, 5, 6, 9
	if h.byPeer(f.uint32(handle)) != nil {
		return f.bad(handle, "%d, which is in use", f.uint32(handle))
	}
	for _, l := range h.links {
		if l.attached || l.receives == f.truth(role) || l.name != string(f.text(name)) {
			continue
		}
		l.attached, l.peer, l.received = true, f.uint32(handle), f.uint32(initialCount)
		l.limit = l.received // until a flow is sent
		l.refused = l.receives && f.null(source) || !l.receives && f.null(target)
		if l.receives && f.uint32(settleMode) != first {
			f.set(settleMode, first)
		}
		return nil
	}
	return f.bad(name, "not that of a link that is being attached")
}

// detachLocked notes a detach. It makes each detach a closing one: the library waits for ever after
// any other.
func (s *screen) detachLocked(h *half, f *inFrame) *violation {
	const handle, closing = 0, 1
	for i, l := range h.links {
		if !l.attached || l.peer != f.uint32(handle) {
			continue
		}
		s.dropPartLocked(l)
		h.links = append(h.links[:i], h.links[i+1:]...)
		if !f.truth(closing) {
			f.set(closing, 1)
		}
		return nil
	}
	return f.bad(handle, "%d, which is not in use", f.uint32(handle))
}

// flow notes a flow, and fills in the optional fields that the library needs.
func (h *half) flow(f *inFrame) *violation {
	const nextIncoming, handle, deliveryCount, linkCredit = 0, 4, 5, 6
	if f.null(nextIncoming) {
		f.set(nextIncoming, h.transfers)
	}
	if f.null(handle) {
		return nil
	}
	l := h.byPeer(f.uint32(handle))
	switch {
	case l == nil:
		return f.bad(handle, "%d, which is not in use", f.uint32(handle))
	case l.refused:
		return f.bad(handle, "%d, a link that was refused", f.uint32(handle))
	}
	if now := time.Now(); l.flows == 0 || now.Sub(l.since) > flowTime {
		l.flows, l.since = 0, now
	}
	if l.flows++; l.flows > maxFlows {
		return f.bad(handle, "%d flows on a link on which nothing is sent", l.flows)
	}
	if l.receives {
		return nil
	}
	count, credit := f.uint32(deliveryCount), f.uint32(linkCredit)
	switch {
	case f.null(linkCredit) && f.null(deliveryCount):
		count, credit = l.count, l.credit
	case f.null(linkCredit):
		credit = left(l.credit, count-l.count)
	}
	if used := l.sent - count; int32(used) > 0 && credit < used {
		credit = used // no credit is left; the library would count below zero
	}
	l.count, l.credit = count, credit
	if f.null(deliveryCount) {
		f.set(deliveryCount, count)
	}
	if f.null(linkCredit) || credit != f.uint32(linkCredit) {
		f.set(linkCredit, credit)
	}
	return nil
}

// left returns the rest of a credit. used is negative when the peer counts further than this side.
func left(credit, used uint32) uint32 {
	if int32(used) < 0 {
		return credit
	}
	return credit - min(credit, used)
}

func (s *screen) transferLocked(h *half, f *inFrame) *violation {
	const handle, deliveryID, deliveryTag, messageFormat, settled, more, resume, aborted = 0, 1, 2, 3, 4, 5, 8, 9
	l := h.byPeer(f.uint32(handle))
	switch {
	case l == nil:
		return f.bad(handle, "%d, which is not in use", f.uint32(handle))
	case !l.receives || l.refused:
		return f.bad(handle, "%d, on which nothing is received", f.uint32(handle))
	case f.truth(resume):
		return f.bad(resume, "no delivery is resumed")
	}
	var p part // with this frame
	if l.part != nil {
		p = *l.part
	}
	switch id := f.uint32(deliveryID); {
	case l.part != nil && !f.null(deliveryID) && id != p.id:
		return f.bad(deliveryID, "%d before the end of %d", id, p.id)
	case l.part != nil:
	case f.null(deliveryID):
		return f.bad(deliveryID, "missing")
	case f.null(deliveryTag):
		return f.bad(deliveryTag, "missing")
	case f.null(messageFormat):
		return f.bad(messageFormat, "missing")
	case id == math.MaxUint32:
		// the library never stops counting when it settles it
		return f.bad(deliveryID, "%d, the last number that there is", id)
	case h.in.any && id != h.in.next:
		return f.bad(deliveryID, "%d, not %d", id, h.in.next)
	case int32(l.limit-l.received) <= 0:
		return f.bad(handle, "%d, a link without credit", f.uint32(handle))
	default:
		h.in.saw(id)
		p.id = id
	}
	p.settled = p.settled || f.truth(settled)
	if f.truth(aborted) {
		s.dropPartLocked(l)
		return nil
	}
	if size := uint64(len(p.payload) + len(f.payload)); size > l.most {
		return &violation{frame: "message", why: fmt.Sprintf("%d bytes, at most %d are taken", size, l.most)}
	}
	if f.truth(more) {
		p.payload = append(p.payload, f.payload...)
		s.parts += len(f.payload)
		if l.part == nil {
			l.part = new(part)
		}
		*l.part = p
		if s.parts > maxParts {
			return &violation{frame: "message", why: fmt.Sprintf("%d bytes of messages without their ends", s.parts)}
		}
		return nil
	}
	payload := f.payload
	if l.part != nil {
		payload = append(p.payload, f.payload...)
		s.dropPartLocked(l)
	}
	l.received++
	if !p.settled {
		h.in.add(p.id)
	}
	return checkMessage(payload)
}

// disposition notes a disposition. The library walks from the first to the last number of the
// range, so the range shrinks to the unsettled deliveries in it. A disposition of other deliveries,
// settled or never sent, is left out: rhea sends such for deliveries of an earlier session.
func (h *half) disposition(f *inFrame) (pass bool, bad *violation) {
	const role, first, last, settled = 0, 1, 2, 3
	set := &h.in
	if f.truth(role) {
		set = &h.out
	}
	from, to := f.uint32(first), f.uint32(first)
	if !f.null(last) {
		to = f.uint32(last)
	}
	switch {
	case int32(to-from) < 0:
		return false, f.bad(last, "%d, before the first, %d", to, from)
	}
	low, high, n := set.take(from, to)
	switch {
	case n == 0:
		return false, nil
	case high < low || high == math.MaxUint32:
		return false, f.bad(last, "all numbers for deliveries are used up")
	case n > maxUnsettledRange && !f.truth(settled):
		return false, f.bad(last, "%d deliveries that are to be settled by an answer", n)
	}
	if low != from {
		f.set(first, low)
	}
	if high != to || f.null(last) && low != high {
		f.set(last, high)
	}
	return true, nil
}
