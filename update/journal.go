package update

import "github.com/hubline-iot/hubline/transport"

// journal keeps the state in two erase blocks, as records of one size.
type journal struct {
	l      *Layout
	log    log
	record []byte
	now    state
}

var errNoState = fault(transport.NotFound, "the flash has no state; call Format once, in the factory")

func newJournal(l *Layout) *journal {
	return &journal{l: l, log: newLog(l.Flash, l.State, 1), record: make([]byte, recordBytes(l.Flash.WriteBlockSize()))}
}

// mount reads the newest record. It is the first call for a new journal.
func (j *journal) mount() error {
	found := false
	size := int64(len(j.record))
	for block := range int64(stateBlocks) {
		for at := int64(0); at+size <= j.log.size(); at += size {
			if err := j.log.read(j.record, block, at); err != nil {
				return err
			}
			var s state
			if s.decode(j.record) && j.fits(&s) && (!found || newer(s.number, j.now.number)) {
				found, j.now, j.log.area = true, s, block
			}
		}
	}
	if !found {
		return errNoState
	}
	return nil
}

// newer reports whether record number a is after b.
func newer(a, b uint32) bool { return int32(a-b) > 0 }

// fits reports whether the images fit into their slots.
func (j *journal) fits(s *state) bool {
	return s.images[0].Size <= j.l.capacity(0) && s.images[1].Size <= j.l.capacity(1)
}

// write makes s the newest record. After an error the state in the flash is s or that from before.
func (j *journal) write(s state) error {
	j.now.number++ // before it can fail: a record that failed may be complete nevertheless
	s.number = j.now.number
	s.encode(j.record)
	if err := j.log.add(j.record); err != nil {
		return err
	}
	j.now = s
	return nil
}

// wrote reports whether the record of the latest write is complete in the flash, although the write
// failed.
func (j *journal) wrote() bool {
	m := newJournal(j.l)
	return m.mount() == nil && m.now.number == j.now.number
}

// Format makes the first state: the image in slot 0 runs and is confirmed. The factory calls it
// once, after it has written that image. It discards an earlier state.
func Format(l *Layout, running Image) error {
	if err := l.validate(); err != nil {
		return err
	}
	if running.Size < 0 || running.Size > l.capacity(0) {
		return fault(transport.TooLarge, "the running image does not fit into Slots[0]")
	}
	if err := l.Flash.EraseBlocks(l.State, stateBlocks); err != nil {
		return flashError(err)
	}
	j := newJournal(l)
	running.Confirmed = true
	return j.write(state{images: [2]Image{running, {}}})
}
