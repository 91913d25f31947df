package update

import "github.com/hubline-iot/hubline/transport"

// journal keeps the state in two erase blocks. A record is appended to one block; when that is
// full, the other one is erased and takes the next record. So the newest complete record survives
// every power cut.
type journal struct {
	l      *Layout
	record []byte
	block  int64 // the block, 0 or 1, that has the newest record
	at     int64 // where the next record goes in block; negative: the other block is next
	now    state
}

var errNoState = fault(transport.NotFound, "the flash has no state; call Format once, in the factory")

// newJournal returns a journal whose next record goes to another block than the newest one: behind
// that may be the remains of a torn record, which look erased and are not.
func newJournal(l *Layout) *journal {
	return &journal{l: l, record: make([]byte, recordBytes(l.Flash.WriteBlockSize())), at: -1}
}

// mount reads the newest record. It is the first call for a new journal.
func (j *journal) mount() error {
	found := false
	erase, size := j.l.Flash.EraseBlockSize(), int64(len(j.record))
	for block := range int64(stateBlocks) {
		for at := int64(0); at+size <= erase; at += size {
			if _, err := j.l.Flash.ReadAt(j.record, (j.l.State+block)*erase+at); err != nil {
				return flashError(err)
			}
			var s state
			if s.decode(j.record) && j.fits(&s) && (!found || int32(s.number-j.now.number) > 0) {
				found, j.now, j.block = true, s, block
			}
		}
	}
	if !found {
		return errNoState
	}
	return nil
}

// fits reports whether the images fit into their slots.
func (j *journal) fits(s *state) bool {
	return s.images[0].Size <= j.l.capacity(0) && s.images[1].Size <= j.l.capacity(1)
}

// write makes s the newest record. After an error the state in the flash is s or that from before.
func (j *journal) write(s state) error {
	erase := j.l.Flash.EraseBlockSize()
	j.now.number++ // before it can fail: a record that failed may be complete nevertheless
	s.number = j.now.number
	block, at := j.block, j.at
	j.at = -1
	if at < 0 || at+int64(len(j.record)) > erase {
		block, at = 1-block, 0
		if err := j.l.Flash.EraseBlocks(j.l.State+block, 1); err != nil {
			return flashError(err)
		}
	}
	s.encode(j.record)
	if _, err := j.l.Flash.WriteAt(j.record, (j.l.State+block)*erase+at); err != nil {
		return flashError(err)
	}
	j.now, j.block, j.at = s, block, at+int64(len(j.record))
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
