package amqp

import (
	"encoding/binary"
	"math"
	"math/bits"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// noted is the number of leading fields that note reads, by performative. 0: note ignores it.
var noted = [256]int{codeBegin: 1, codeAttach: 11, codeFlow: 7, codeTransfer: 6, codeDisposition: 4}

// note notes what this side sends: p is a frame of the library, or a protocol header. The peer's
// frames are checked against it.
func (s *screen) note(p []byte) {
	if len(p) < wire.HeaderSize+3 || p[5] != wire.FrameAMQP {
		return
	}
	known := noted[p[10]]
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
			s.local = make(map[uint16]*half)
		}
		s.local[f.channel] = &half{channel: f.channel}
		return
	}
	h := s.local[f.channel]
	if h == nil {
		return // the peer has ended it
	}
	switch p[10] {
	case codeAttach:
		h.attaching(f)
	case codeFlow:
		h.gives(f)
	case codeTransfer:
		h.sends(f)
	case codeDisposition:
		h.settles(f)
	}
}

// outFrame is a frame that this side sends.
type outFrame struct {
	channel uint16
	all     [11]wire.Value
}

func (f *outFrame) given(i int) bool    { return f.all[i].Type&^wire.IsNull != 0 }
func (f *outFrame) uint32(i int) uint32 { return uint32(f.all[i].Number) }
func (f *outFrame) truth(i int) bool    { return f.all[i].Number != 0 }

func (h *half) attaching(f *outFrame) {
	const name, handle, role, maxMessageSize = 0, 1, 2, 10
	v := &f.all[name]
	l := &halfLink{
		name: string(v.Raw[len(v.Raw)-v.Length:]), handle: f.uint32(handle), receives: f.truth(role), most: maxMessage,
	}
	if most := f.all[maxMessageSize].Number; most > 0 {
		l.most = min(l.most, most)
	}
	h.links = append(h.links, l)
}

// byHandle finds a link by this side's handle: the latest, for a handle may be used again before
// the peer has detached.
func (h *half) byHandle(handle uint32) *halfLink {
	for i := len(h.links) - 1; i >= 0; i-- {
		if l := h.links[i]; l.handle == handle {
			return l
		}
	}
	return nil
}

// gives notes the credit that the peer has.
func (h *half) gives(f *outFrame) {
	const handle, deliveryCount, linkCredit = 4, 5, 6
	if !f.given(handle) {
		return
	}
	if l := h.byHandle(f.uint32(handle)); l != nil {
		l.flows = 0
		if limit := f.uint32(deliveryCount) + f.uint32(linkCredit); l.receives && int32(limit-l.limit) > 0 {
			l.limit = limit
		}
	}
}

func (h *half) sends(f *outFrame) {
	const handle, deliveryID, settled, more = 0, 1, 4, 5
	h.transfers++
	l := h.byHandle(f.uint32(handle))
	if l == nil {
		return
	}
	l.flows = 0
	if f.given(deliveryID) {
		h.out.saw(f.uint32(deliveryID))
		h.out.add(f.uint32(deliveryID))
	}
	if f.truth(more) {
		return
	}
	l.sent++
	if f.truth(settled) && h.out.any {
		h.out.take(h.out.next-1, h.out.next-1)
	}
}

func (h *half) settles(f *outFrame) {
	const role, first, last, settled = 0, 1, 2, 3
	if !f.truth(role) || !f.truth(settled) {
		return
	}
	to := f.uint32(first)
	if f.given(last) {
		to = f.uint32(last)
	}
	h.in.take(f.uint32(first), to)
}

// deliveries are the unsettled deliveries of a session in one direction: a bit for each number from
// base on.
type deliveries struct {
	any  bool   // there was one
	next uint32 // the number of the next one
	base uint32 // that of the first bit
	bits []uint64
}

// maxSpan is how far apart unsettled deliveries may be. Older ones are forgotten: no caller waits
// that long.
const maxSpan = 1 << 20

// saw notes the number of a delivery.
func (d *deliveries) saw(id uint32) { d.any, d.next = true, id+1 }

// add makes a delivery unsettled. Numbers only grow.
func (d *deliveries) add(id uint32) {
	if len(d.bits) == 0 {
		d.base = id
	}
	if over := int(id-d.base) - maxSpan + 1; over > 0 {
		if d.forget((over + 63) / 64); len(d.bits) == 0 {
			d.base = id // also when the gap is wider than the span
		}
	}
	at := int(id - d.base)
	for at >= 64*len(d.bits) {
		d.bits = append(d.bits, 0)
	}
	d.bits[at/64] |= 1 << (at % 64)
}

// take settles the deliveries of a range. It returns the first and the last that were unsettled,
// and their number.
func (d *deliveries) take(from, to uint32) (low, high uint32, n int) {
	begin := max(0, int(int32(from-d.base)))
	end := min(int(int32(to-d.base)), 64*len(d.bits)-1)
	for at := begin; at <= end; at = (at/64 + 1) * 64 {
		word := &d.bits[at/64]
		mask := ^uint64(0) << (at % 64)
		if end/64 == at/64 {
			mask &= ^uint64(0) >> (63 - end%64)
		}
		found := *word & mask
		if found == 0 {
			continue
		}
		*word &^= found
		first := d.base + uint32(at/64*64)
		if n == 0 {
			low = first + uint32(bits.TrailingZeros64(found))
		}
		high = first + 63 - uint32(bits.LeadingZeros64(found))
		n += bits.OnesCount64(found)
	}
	empty := 0
	for empty < len(d.bits) && d.bits[empty] == 0 {
		empty++
	}
	d.forget(empty)
	return low, high, n
}

// forget takes words off the front.
func (d *deliveries) forget(words int) {
	words = min(words, len(d.bits))
	if words == 0 {
		return
	}
	d.bits = d.bits[:copy(d.bits, d.bits[words:])]
	d.base += uint32(64 * words)
}
