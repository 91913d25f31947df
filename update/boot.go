package update

import (
	"crypto/sha256"
	"crypto/subtle"

	"github.com/hubline-iot/hubline/transport"
)

var errDamaged = fault(transport.NotFound, "no slot has an intact image that was confirmed")

// Boot returns the slot to start. A boot loader calls it once after each reset. It counts the
// starts of a new image and, when none is left, goes back to the confirmed one for good. If the
// confirmed image is damaged it goes back to the one before, and confirms that.
// buf is memory for reading, of any size above 0.
//
// With an error the slot is the best guess: the state could not be read or written, or no image is
// intact.
func Boot(l *Layout, buf []byte) (slot int, err error) {
	if err := l.validate(); err != nil {
		return 0, err
	}
	if len(buf) == 0 {
		return 0, invalid("Boot: buf is empty; give a buffer of 256 bytes or more")
	}
	j := newJournal(l)
	if err := j.mount(); err != nil {
		return 0, err
	}
	s := j.now
	if s.phase == PhaseReady || s.phase == PhaseTrying {
		if s.tries > 0 && intact(l, s.other(), s.next(), buf) {
			s.phase = PhaseTrying
			s.tries--
			if err := j.write(s); err != nil && !j.wrote() {
				return int(s.active), err // an uncounted start could repeat for ever
			}
			return int(s.other()), nil
		}
		s.phase, s.outcome = PhaseIdle, OutcomeRolledBack
		if err := j.write(s); err != nil {
			return int(s.active), err
		}
	}
	if intact(l, s.active, s.proven(), buf) {
		return int(s.active), nil
	}
	if s.next().Confirmed && intact(l, s.other(), s.next(), buf) {
		*s.proven() = Image{} // of the decayed image; the next download repairs its slot
		s.active, s.outcome, s.done = s.other(), OutcomeRolledBack, 0
		return int(s.active), j.write(s)
	}
	return int(s.active), errDamaged
}

// intact reports whether a slot has the content of m.
func intact(l *Layout, slot uint8, m *Image, buf []byte) bool {
	sum := sha256.New()
	for off := int64(0); off < m.Size; {
		part := buf[:min(int64(len(buf)), m.Size-off)]
		if _, err := l.Flash.ReadAt(part, l.offset(slot)+off); err != nil {
			return false
		}
		sum.Write(part)
		off += int64(len(part))
	}
	var have [sha256.Size]byte
	return subtle.ConstantTimeCompare(sum.Sum(have[:0]), m.SHA256[:]) == 1
}
