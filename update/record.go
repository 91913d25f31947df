package update

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
)

// Image describes the content of a slot.
type Image struct {
	Version uint32
	Size    int64
	SHA256  [sha256.Size]byte
	// Confirmed: it was the running image, and worked.
	Confirmed bool
}

// state is what survives a reset. The page docs/updates.md describes its bytes.
type state struct {
	number  uint32 // of the record; the newest counts
	phase   Phase
	active  uint8 // slot of the confirmed image
	tries   uint8 // starts that the new image has left
	outcome Outcome
	done    int64 // complete bytes in the other slot, a multiple of the erase block or all
	images  [2]Image
}

func (s *state) other() uint8   { return 1 - s.active }
func (s *state) next() *Image   { return &s.images[s.other()] }
func (s *state) proven() *Image { return &s.images[s.active] }

// Sizes and offsets of a record.
const (
	magic      = "HUBUPD01"
	atNumber   = 8
	atPhase    = 12
	atActive   = 13
	atTries    = 14
	atOutcome  = 15
	atDone     = 16
	atImages   = 20
	imageBytes = 44
	atCheck    = atImages + 2*imageBytes
	checkBytes = 12
	stateBytes = atCheck + checkBytes
)

// recordBytes returns the size of a record in whole write blocks.
func recordBytes(write int64) int64 { return (stateBytes + write - 1) / write * write }

// encode fills p, which has the size of a record.
func (s *state) encode(p []byte) {
	for i := range p {
		p[i] = 0xff
	}
	copy(p, magic)
	binary.BigEndian.PutUint32(p[atNumber:], s.number)
	p[atPhase], p[atActive], p[atTries], p[atOutcome] = byte(s.phase), s.active, s.tries, byte(s.outcome)
	binary.BigEndian.PutUint32(p[atDone:], uint32(s.done))
	for i := range s.images {
		m, at := &s.images[i], p[atImages+i*imageBytes:]
		binary.BigEndian.PutUint32(at, m.Version)
		binary.BigEndian.PutUint32(at[4:], uint32(m.Size))
		copy(at[8:], m.SHA256[:])
		clear(at[40:44])
		if m.Confirmed {
			at[40] = 1
		}
	}
	sum := sha256.Sum256(p[:atCheck])
	copy(p[atCheck:], sum[:checkBytes])
}

// decode reads a record and reports whether it is complete. A power cut leaves incomplete ones.
func (s *state) decode(p []byte) bool {
	if len(p) < stateBytes || string(p[:len(magic)]) != magic {
		return false
	}
	sum := sha256.Sum256(p[:atCheck])
	if subtle.ConstantTimeCompare(sum[:checkBytes], p[atCheck:stateBytes]) != 1 {
		return false
	}
	*s = state{
		number: binary.BigEndian.Uint32(p[atNumber:]), phase: Phase(p[atPhase]), active: p[atActive], tries: p[atTries],
		outcome: Outcome(p[atOutcome]), done: int64(binary.BigEndian.Uint32(p[atDone:])),
	}
	if int(s.phase) >= len(phases) || int(s.outcome) >= len(outcomes) || s.active > 1 {
		return false
	}
	for i := range s.images {
		m, at := &s.images[i], p[atImages+i*imageBytes:]
		m.Version, m.Size = binary.BigEndian.Uint32(at), int64(binary.BigEndian.Uint32(at[4:]))
		copy(m.SHA256[:], at[8:])
		m.Confirmed = at[40] == 1
		if m.Size > maxImage {
			return false
		}
	}
	return s.done <= s.next().Size
}
