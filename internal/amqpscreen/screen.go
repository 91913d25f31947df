// Package amqpscreen is what stands between the AMQP library and the network: a net.Conn that
// buffers what the library writes, and checks each frame of the peer before the library gets it.
package amqpscreen

import (
	"encoding/binary"
	"math"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// screen decides which frames of the peer are passed to the library. The library (go-amqp 1.7)
// decodes with few checks, on goroutines whose panics cannot be recovered: a frame can make it
// panic, loop or leak memory. So the screen decodes and checks each frame, and compares it with the
// earlier frames of both directions. Frames that are safe for the library pass, some of them
// rewritten. Any other frame is a violation, which ends the connection. A violation in the sections
// of a message affects that message only.
type screen struct {
	// sessions is how many sessions the peer allows; 0 before its open. Any goroutine may read it.
	sessions atomic.Int32
	// sasl is set by the peer's protocol header of SASL. Any goroutine may read it.
	sasl  atomic.Bool
	ended int // sessions that the peer has ended since the last read of this field; owned by the reading goroutine

	phase phase // owned by the reading goroutine

	mu      sync.Mutex               // guards the fields below; never held during I/O
	local   map[uint16]*sessionState // by this side's channel
	remote  map[uint16]*sessionState // by the peer's channel
	partial int                      // bytes of incomplete messages
}

// phase says which frames the peer may send next.
type phase uint8

const (
	atHeader     phase = iota // a protocol header
	atMechanisms              // of SASL
	atOutcome                 // of SASL
	atOpen
	running
	closed // the connection is closed; frames are ignored
)

const (
	// maxMessage is the size of the largest message. A larger one is rejected.
	maxMessage = 16 << 20
	// maxPartial is how many bytes of incomplete messages a connection keeps. A message beyond them is
	// released.
	maxPartial = 2 * maxMessage
	// minIdle is the shortest idle time-out of a peer that the library sees. The library writes a
	// frame every half of it.
	minIdle = time.Second
	// maxFlows is how many flows a peer may send for a link within flowTime while this side sends
	// nothing on it. The library keeps all flows of a link that was abandoned.
	maxFlows = 10_000
	flowTime = time.Hour
	// maxUnsettledRange is how many deliveries a disposition that requires an answer may name. The
	// library walks the whole range once for each of them.
	maxUnsettledRange = 1024
)

// sessionState is the state of a session as seen in the frames of both directions.
type sessionState struct {
	channel   uint16 // of this side
	begun     bool   // by the peer
	transfers uint32 // frames that were sent: the next transfer-id
	out, in   deliveries
	links     []*linkState
}

// linkState is the state of a link as seen in the frames of both directions.
type linkState struct {
	name     string
	handle   uint32 // of this side
	peer     uint32 // the peer's handle
	receives bool   // this side is the receiver
	attached bool   // by the peer
	refused  bool   // by the peer: only a detach may follow

	// When this side is the sender.
	sent          uint32 // messages
	sending       bool   // the transfers of delivery sendingID have begun, and not ended
	sendingID     uint32
	count, credit uint32 // delivery-count and link-credit that the peer sent last
	// unsettled: deliveries from firstUnsettled to lastUnsettled were sent that the peer has to
	// settle. One link of a session has such deliveries.
	unsettled                     bool
	firstUnsettled, lastUnsettled uint32

	// When this side is the receiver.
	creditEnd uint32           // the delivery-count at which the peer has no credit left
	received  uint32           // the peer's delivery-count
	maxSize   uint64           // bytes of a message
	partial   *partialDelivery // nil: none

	flows int       // flows received since this side last sent on the link
	since time.Time // the time of the first of them
}

// header records a protocol header. The library checks it.
func (s *screen) header(id byte) {
	s.phase = atOpen
	if id == wire.ProtocolSASL {
		s.sasl.Store(true)
		s.phase = atMechanisms
	}
}

// frame checks a frame. It returns b itself if it passes, or frames that replace it, or nothing.
func (s *screen) frame(b []byte) ([]byte, error) {
	if s.phase == closed {
		return nil, nil
	}
	out, bad := s.checkFrame(b)
	if bad != nil {
		return nil, bad.during(s.phase)
	}
	return out, nil
}

func (s *screen) checkFrame(b []byte) ([]byte, *Violation) {
	head := int(b[4]) * 4
	if head < wire.HeaderSize || head > len(b) {
		return nil, broken("frame", "has the data offset %d, of %d bytes", head, len(b))
	}
	want := wire.FrameAMQP
	if s.phase == atMechanisms || s.phase == atOutcome {
		want = wire.FrameSASL
	}
	switch {
	case b[5] != want:
		return nil, broken("frame", "has the type %d, not %d", b[5], want)
	case head == len(b):
		return nil, nil // a keep-alive: the library keeps its bytes until another frame arrives
	}
	body := b[head:]
	w := wire.NewWalker(body, maxItems)
	code, fields, count, err := w.Open()
	if err != nil {
		return nil, undecodable("frame", err)
	}
	var c *composite
	for _, p := range performatives {
		if p.code == code {
			c = p
		}
	}
	if c == nil || !s.phase.allows(code) {
		return nil, broken("frame", "has the performative 0x%02x, which must not come here", code)
	}
	f := inFrame{composite: c, channel: binary.BigEndian.Uint16(b[6:]), body: body, count: count, payload: w.Rest()}
	if bad := c.check(&fields, count, body[:len(body)-len(w.Rest())], f.all[:]); bad != nil {
		return nil, bad
	}
	if code != codeTransfer && len(w.Rest()) > 0 {
		return nil, broken(c.name, "has %d bytes behind it", len(w.Rest()))
	}
	pass, bad := s.apply(&f)
	switch {
	case bad != nil:
		return nil, bad
	case !pass:
		return f.before, nil
	case len(f.before) > 0:
		return append(f.before, f.rewritten()...), nil
	case f.changed != 0:
		return f.rewritten(), nil
	case head > wire.HeaderSize || body[1] != 0x53: // the library knows neither extended headers nor long descriptors
		return f.rewritten(), nil
	}
	return b, nil
}

// allows reports whether the phase allows a performative.
func (p phase) allows(code uint64) bool {
	switch p {
	case atMechanisms:
		return code == codeMechanisms
	case atOutcome:
		return code == codeOutcome
	case atOpen:
		return code == codeOpen
	case running:
		return code > codeOpen && code <= codeClose
	case atHeader, closed:
	}
	return false
}

// apply checks a frame against the frames before it, and records it. pass: the library gets it,
// behind f.before.
func (s *screen) apply(f *inFrame) (pass bool, bad *Violation) {
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
		return false, broken(f.name, "is on channel %d, which has no session", f.channel)
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
		return s.transferLocked(h, f)
	case codeDisposition:
		return h.disposition(f)
	}
	return true, s.detachLocked(h, f)
}

// open records an open, and raises a short idle time-out.
func (s *screen) open(f *inFrame) {
	const channelMax, idleTimeout = 3, 4
	highest := uint32(math.MaxUint16)
	if !f.null(channelMax) {
		highest = f.uint32(channelMax)
	}
	s.sessions.Store(int32(highest) + 1)
	if least := uint32(minIdle / time.Millisecond); f.uint32(idleTimeout) > 0 && f.uint32(idleTimeout) < least {
		f.set(idleTimeout, least)
	}
	s.phase = running
}
