package fleet

import (
	"math/bits"
	"slices"
)

// An arrival is a request that reaches the hub, packed so that the arrivals of a step sort by time:
// the time since the beginning of the step, the device and the request.
type arrival uint64

func arrivalOf(e entry, start int64) arrival {
	return arrival(e.at-start)<<(blockBits+deviceBits+batchBits) | arrival(e.device)<<batchBits | arrival(e.request)
}

func (a arrival) since() int64   { return int64(a >> (blockBits + deviceBits + batchBits)) }
func (a arrival) device() number { return number(a >> batchBits & (1<<(blockBits+deviceBits) - 1)) }
func (a arrival) request() int   { return int(a & (1<<batchBits - 1)) }

// order sorts the arrivals of a step by time. Arrivals are spread over the step, so each goes to
// one of about as many parts as there are arrivals, and hardly any are left to compare: that takes
// a third of the time of slices.Sort.
type order struct {
	step   int64   // nanoseconds
	ends   []int32 // of each part in sorted
	sorted []arrival
}

const (
	fewArrivals = 64 // to sort them at once is as fast
	partsBits   = 16 // at most
)

// sort returns the sorted list. It is valid until the next call.
func (o *order) sort(list []arrival) []arrival {
	if len(list) < fewArrivals {
		slices.Sort(list)
		return list
	}
	width := min(bits.Len(uint(len(list))), partsBits)
	shift := max(0, bits.Len64(uint64(o.step-1))-width)
	parts := int((o.step-1)>>shift) + 1
	o.ends = slices.Grow(o.ends[:0], parts)[:parts]
	clear(o.ends)
	for _, a := range list {
		o.ends[a.since()>>shift]++
	}
	var end int32
	for i, n := range o.ends {
		o.ends[i], end = end, end+n // the beginning, which moves to the end
	}
	o.sorted = slices.Grow(o.sorted[:0], len(list))[:len(list)]
	for _, a := range list {
		i := &o.ends[a.since()>>shift]
		o.sorted[*i] = a
		*i++
	}
	var begin int32
	for _, end := range o.ends {
		if end-begin > 1 {
			slices.Sort(o.sorted[begin:end])
		}
		begin = end
	}
	return o.sorted
}
