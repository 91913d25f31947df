package update

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"

	"github.com/hubline-iot/hubline/transport"
)

// Store keeps a text in the flash as a whole: the state of an agent (agent.Store). It writes the
// halves of its blocks in turn, so the newest complete text survives every power cut. Each Save
// erases one half. A Store is not safe for concurrent use.
type Store struct {
	flash  Flash
	area   Slot
	number uint32 // of the newest text
	half   int64  // where that is
	empty  bool   // there is none
}

const (
	storeMagic = "HUBSTO01"
	storeHead  = 32 // magic, number, length, and the beginning of the SHA-256 of both and the text
	storeCheck = 16
)

// NewStore returns the Store in an even number of erase blocks, and finds the newest text in it.
func NewStore(f Flash, area Slot) (*Store, error) {
	s := &Store{flash: f, area: area, empty: true, half: 1}
	switch {
	case f == nil:
		return nil, invalid("NewStore: the flash is nil")
	case area.First < 0 || area.Blocks < 2 || area.Blocks%2 != 0 || area.First+area.Blocks > f.Size()/f.EraseBlockSize():
		return nil, invalid("NewStore: give an even number of erase blocks that the flash has")
	case f.EraseBlockSize() < 2*s.headBytes():
		return nil, invalid("NewStore: the erase blocks are too small")
	}
	for half := range int64(2) {
		number, text, err := s.read(half)
		if err != nil {
			return nil, err
		}
		if text != nil && (s.empty || int32(number-s.number) > 0) {
			s.number, s.half, s.empty = number, half, false
		}
	}
	return s, nil
}

// headBytes returns the size of a head in whole write blocks.
func (s *Store) headBytes() int64 {
	write := s.flash.WriteBlockSize()
	return (storeHead + write - 1) / write * write
}

func (s *Store) offset(half int64) int64 {
	return (s.area.First + half*s.area.Blocks/2) * s.flash.EraseBlockSize()
}

func (s *Store) capacity() int64 { return s.area.Blocks/2*s.flash.EraseBlockSize() - s.headBytes() }

// read returns the text in a half, nil if there is no complete one.
func (s *Store) read(half int64) (number uint32, text []byte, err error) {
	var head [storeHead]byte
	if _, err := s.flash.ReadAt(head[:], s.offset(half)); err != nil {
		return 0, nil, flashError(err)
	}
	length := binary.BigEndian.Uint32(head[12:])
	if string(head[:8]) != storeMagic || int64(length) > s.capacity() {
		return 0, nil, nil
	}
	text = make([]byte, length)
	if _, err := s.flash.ReadAt(text, s.offset(half)+s.headBytes()); err != nil {
		return 0, nil, flashError(err)
	}
	if sum := storeSum(head[:16], text); subtle.ConstantTimeCompare(sum[:], head[16:]) != 1 {
		return 0, nil, nil
	}
	return binary.BigEndian.Uint32(head[8:]), text, nil
}

func storeSum(head, text []byte) (check [storeCheck]byte) {
	sum := sha256.New()
	sum.Write(head)
	sum.Write(text)
	var all [sha256.Size]byte
	copy(check[:], sum.Sum(all[:0]))
	return check
}

// Load returns the text of the latest Save, nil if there was none.
func (s *Store) Load() ([]byte, error) {
	if s.empty {
		return nil, nil
	}
	_, text, err := s.read(s.half)
	return text, err
}

// Save replaces the text. After an error it is the old or the new one. A text that is too large for
// half of the blocks is an error of Kind TooLarge.
func (s *Store) Save(text []byte) error {
	if int64(len(text)) > s.capacity() {
		return fault(transport.TooLarge, "Store: the text is larger than half of the blocks; give it more of them")
	}
	s.number++ // before it can fail: a text that failed may be complete nevertheless
	half := 1 - s.half
	if err := s.flash.EraseBlocks(s.area.First+half*s.area.Blocks/2, s.area.Blocks/2); err != nil {
		return flashError(err)
	}
	if err := s.write(s.offset(half)+s.headBytes(), text); err != nil {
		return err
	}
	var head [storeHead]byte
	copy(head[:], storeMagic)
	binary.BigEndian.PutUint32(head[8:], s.number)
	binary.BigEndian.PutUint32(head[12:], uint32(len(text)))
	sum := storeSum(head[:16], text)
	copy(head[16:], sum[:])
	if err := s.write(s.offset(half), head[:]); err != nil { // last: without it the text does not count
		return err
	}
	s.half, s.empty = half, false
	return nil
}

// write writes p, and fills the last write block.
func (s *Store) write(off int64, p []byte) error {
	block := int(s.flash.WriteBlockSize())
	whole := len(p) / block * block
	if _, err := s.flash.WriteAt(p[:whole], off); err != nil {
		return flashError(err)
	}
	if whole == len(p) {
		return nil
	}
	last := make([]byte, block)
	copy(last, p[whole:])
	if _, err := s.flash.WriteAt(last, off+int64(whole)); err != nil {
		return flashError(err)
	}
	return nil
}
