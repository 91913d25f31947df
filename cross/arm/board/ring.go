package board

import (
	"strconv"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// Store keeps readings over a loss of power: flash, FRAM, battery-backed RAM. Its calls may block
// for as long as an erase takes. Readings are numbered from 1 upwards, and numbers go on after a
// reset.
type Store interface {
	// Keep keeps a reading; body is the caller's again on return.
	Keep(number uint32, body []byte) error
	// Forget forgets a reading that the hub has, or that was given up. A reading that was not
	// forgotten before the power went is sent again after it.
	Forget(number uint32) error
	// Load calls f for each reading that is kept, in order, and returns the highest number ever kept,
	// 0 for none. f does not call the store.
	Load(f func(number uint32, body []byte)) (last uint32, err error)
}

// ring holds the readings that the hub does not have yet, in memory that is allocated once. A slot
// never moves, for the client may have it; places in the order do.
type ring struct {
	slots []*slot // the oldest first; those from n on are free
	n     int     // so many are in use
}

// slot is one reading. The message and its receipt belong to the client while sent is true.
type slot struct {
	message transport.Message
	receipt device.Receipt
	number  uint32
	sent    bool
	done    bool // the hub has it, or it was given up
}

// newRing allocates slots of size bytes each.
func newRing(slots, size int) ring {
	r := ring{slots: make([]*slot, slots)}
	all := make([]slot, slots)
	memory := make([]byte, slots*size)
	for i := range all {
		all[i].message.Body = memory[i*size : i*size : (i+1)*size]
		r.slots[i] = &all[i]
	}
	return r
}

func (r *ring) full() bool { return r.n == len(r.slots) }

// add takes a free slot; there must be one.
func (r *ring) add(number uint32) *slot {
	s := r.slots[r.n]
	r.n++
	s.number, s.sent, s.done = number, false, false
	s.message.Body = s.message.Body[:0]
	return s
}

// trim frees what is done, wherever it is.
func (r *ring) trim() {
	kept := 0
	for i := range r.n {
		if s := r.slots[i]; !s.done {
			r.slots[i], r.slots[kept] = r.slots[kept], s
			kept++
		}
	}
	r.n = kept
}

// undo takes the newest back.
func (r *ring) undo() { r.n-- }

// appendReading writes {"n":NUMBER,FIELDS} to b, where read appends FIELDS.
func appendReading(b []byte, number uint32, read func([]byte) []byte) []byte {
	b = append(b, `{"n":`...)
	b = strconv.AppendUint(b, uint64(number), 10)
	b = append(b, ',')
	return append(read(b), '}')
}
