package amqpscreen

import (
	"encoding/binary"
	"math"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// sentFields is how many fields of a performative recordSent reads. 0: it ignores the performative.
var sentFields = [256]int{codeBegin: 1, codeAttach: 11, codeFlow: 7, codeTransfer: 6, codeDisposition: 4}

// recordSent records what this side sends: a frame of the library, or a protocol header. The screen
// checks the peer's frames against it.
func (s *screen) recordSent(p []byte) {
	if len(p) < wire.HeaderSize+3 || p[5] != wire.FrameAMQP {
		return
	}
	known := sentFields[p[10]]
	if known == 0 {
		return
	}
	w := wire.NewWalker(p[wire.HeaderSize:], math.MaxInt)
	_, fields, count, err := w.Open()
	if err != nil {
		return
	}
	f := &outFrame{channel: binary.BigEndian.Uint16(p[6:])}
	for i := range min(count, known) {
		if f.all[i], err = fields.Next(); err != nil {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p[10] == codeBegin {
		if s.local == nil {
			s.local = make(map[uint16]*sessionState)
		}
		s.local[f.channel] = &sessionState{channel: f.channel}
		return
	}
	h := s.local[f.channel]
	if h == nil {
		return // the peer has ended it
	}
	switch p[10] {
	case codeAttach:
		h.sentAttach(f)
	case codeFlow:
		h.sentFlow(f)
	case codeTransfer:
		h.sentTransfer(f)
	case codeDisposition:
		h.sentDisposition(f)
	}
}

// outFrame is a frame that this side sends.
type outFrame struct {
	channel uint16
	all     [11]wire.Value
}

func (f *outFrame) given(i int) bool    { return f.all[i].Type&^wire.IsNull != 0 }
func (f *outFrame) uint32(i int) uint32 { return uint32(f.all[i].Number) }
func (f *outFrame) isTrue(i int) bool   { return f.all[i].Number != 0 }

func (h *sessionState) sentAttach(f *outFrame) {
	const name, handle, role, maxMessageSize = 0, 1, 2, 10
	v := &f.all[name]
	l := &linkState{
		name: string(v.Raw[len(v.Raw)-v.Length:]), handle: f.uint32(handle), receives: f.isTrue(role), maxSize: maxMessage,
	}
	if own := f.all[maxMessageSize].Number; own > 0 {
		l.maxSize = min(l.maxSize, own)
	}
	h.links = append(h.links, l)
}

// byHandle finds a link by this side's handle. It returns the latest one, as a handle may be reused
// before the peer has detached.
func (h *sessionState) byHandle(handle uint32) *linkState {
	for i := len(h.links) - 1; i >= 0; i-- {
		if l := h.links[i]; l.handle == handle {
			return l
		}
	}
	return nil
}

// sentFlow records the credit of the peer.
func (h *sessionState) sentFlow(f *outFrame) {
	const handle, deliveryCount, linkCredit = 4, 5, 6
	if !f.given(handle) {
		return
	}
	if l := h.byHandle(f.uint32(handle)); l != nil {
		l.flows = 0
		if end := f.uint32(deliveryCount) + f.uint32(linkCredit); l.receives && int32(end-l.creditEnd) > 0 {
			l.creditEnd = end
		}
	}
}

func (h *sessionState) sentTransfer(f *outFrame) {
	const handle, deliveryID, settled, more = 0, 1, 4, 5
	h.transfers++
	l := h.byHandle(f.uint32(handle))
	if l == nil {
		return
	}
	l.flows = 0
	if f.given(deliveryID) { // only the first transfer of a delivery has it
		l.sending, l.sendingID = true, f.uint32(deliveryID)
		h.out.begin(l.sendingID)
	}
	if f.isTrue(more) {
		return
	}
	l.sent++
	id := l.sendingID
	switch {
	case !l.sending:
	case f.isTrue(settled):
		h.out.settle(id, id)
	case l.unsettled:
		if int32(h.out.base-l.firstUnsettled) > 0 {
			l.firstUnsettled = h.out.base // keeps the range narrow: numbers wrap
		}
		l.lastUnsettled = id
	default:
		l.unsettled, l.firstUnsettled, l.lastUnsettled = true, id, id
	}
	l.sending = false
}

func (h *sessionState) sentDisposition(f *outFrame) {
	const role, first, last, settled = 0, 1, 2, 3
	if !f.isTrue(role) || !f.isTrue(settled) {
		return
	}
	to := f.uint32(first)
	if f.given(last) {
		to = f.uint32(last)
	}
	h.in.settle(f.uint32(first), to)
}
