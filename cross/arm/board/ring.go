package board

import (
	"strconv"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// Store keeps readings across a power loss: flash (package flashlog), FRAM, battery-backed RAM. Its
// calls may block for the time of an erase. Readings are numbered from 1, and the numbers continue
// after a reset.
type Store interface {
	// Keep stores a reading. It must not keep body after it returns.
	Keep(number uint32, body []byte) error
	// Forget removes a reading that the hub has, or that was dropped. A reading that is not removed
	// before a power loss is sent again.
	Forget(number uint32) error
	// Load calls f for each stored reading, in order, and returns the highest number ever stored, 0
	// for none. f does not call the store.
	Load(f func(number uint32, body []byte)) (last uint32, err error)
}

// ring holds the readings that the hub does not have yet, in memory allocated once. A slot never
// moves, because the client may use it; only its position in the order changes.
type ring struct {
	slots []*slot // the oldest first; those from n on are free
	n     int     // number of slots in use
}

// slot is one reading. The message and its receipt belong to the client while sent is true.
type slot struct {
	message transport.Message
	receipt device.Receipt
	number  uint32
	sent    bool
	done    bool // the hub has it, or it was dropped
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

// trim frees all slots that are done.
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

// undo removes the newest reading.
func (r *ring) undo() { r.n-- }

// appendReading writes {"n":NUMBER,FIELDS} to b, where read appends FIELDS.
func appendReading(b []byte, number uint32, read func([]byte) []byte) []byte {
	b = append(b, `{"n":`...)
	b = strconv.AppendUint(b, uint64(number), 10)
	b = append(b, ',')
	return append(read(b), '}')
}
