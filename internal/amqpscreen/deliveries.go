package amqpscreen

import "math/bits"

// deliveries are the unsettled deliveries of a session in one direction: a bit for each number from
// base on.
type deliveries struct {
	any  bool   // there was a delivery
	next uint32 // the number of the next one
	base uint32 // the number of the first bit
	bits []uint64
}

// maxSpan is how far apart unsettled deliveries may be. Older ones are forgotten: no caller waits
// that long.
const maxSpan = 1 << 20

// begin records the first transfer of a delivery: it is unsettled until settle names it. Deliveries
// of several links end in any order, but begin in the order of their numbers.
func (d *deliveries) begin(id uint32) {
	d.any, d.next = true, id+1
	if len(d.bits) == 0 {
		d.base = id
	}
	if at := id - d.base; at >= maxSpan {
		if d.forget(int((at-maxSpan)/64) + 1); len(d.bits) == 0 {
			d.base = id // also when the gap is wider than the span
		}
	}
	at := id - d.base
	for at/64 >= uint32(len(d.bits)) {
		d.bits = append(d.bits, 0)
	}
	d.bits[at/64] |= 1 << (at % 64)
}

// settle settles the deliveries of a range. It returns the first and the last that were unsettled,
// and their number.
func (d *deliveries) settle(from, to uint32) (low, high uint32, n int) {
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

// forget drops words from the front.
func (d *deliveries) forget(words int) {
	words = min(words, len(d.bits))
	if words == 0 {
		return
	}
	d.bits = d.bits[:copy(d.bits, d.bits[words:])]
	d.base += uint32(64 * words)
}
