package update

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"

	"github.com/hubline-iot/hubline/transport"
)

// Store keeps one value on flash: the one that Save wrote latest, whole. It is an agent.Store of
// package update/agent for boards. It is not safe for concurrent use.
//
// A value is a record with these bytes, padded with 0xff to whole write blocks: HUBSTO01, the
// number of the record (4, big endian), the length of the value (4), the value, and the beginning
// of the SHA-256 of all that (12).
type Store struct {
	log    log
	number uint32
	at     int64 // where the newest record is in its area
	length int64 // of the value in it; negative: there is none
}

const (
	valueMagic  = "HUBSTO01"
	valueHeader = len(valueMagic) + 8
)

// NewStore returns the Store in an even number of erase blocks, which nothing else uses. One half
// holds values while the other one is erased, so a value can have the size of half of the blocks,
// less 28 bytes. Blocks that hold something else count as empty.
func NewStore(flash Flash, area Slot) (*Store, error) {
	if flash == nil {
		return nil, invalid("NewStore: the flash is nil; give the flash memory")
	}
	erase, write := flash.EraseBlockSize(), flash.WriteBlockSize()
	if write <= 0 || erase <= 0 || erase%write != 0 || erase > maxImage {
		return nil, invalid("NewStore: the erase blocks of the flash are not whole write blocks")
	}
	if area.First < 0 || area.Blocks <= 0 || area.Blocks%2 != 0 || area.Blocks > maxImage/erase ||
		area.First > flash.Size()/erase-area.Blocks {
		return nil, invalid("NewStore: give an even number of erase blocks that the flash has")
	}
	s := &Store{log: newLog(flash, area.First, area.Blocks/2), length: -1}
	for area := range int64(2) {
		if err := s.scan(area); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// scan reads the records of an area, which follow one another until the first one that is not
// complete.
func (s *Store) scan(area int64) error {
	for at := int64(0); at+s.padded(0) <= s.log.size(); {
		var head [valueHeader]byte
		if err := s.log.read(head[:], area, at); err != nil {
			return err
		}
		number, length := binary.BigEndian.Uint32(head[8:]), int64(binary.BigEndian.Uint32(head[12:]))
		if string(head[:len(valueMagic)]) != valueMagic || length > s.log.size() || at+s.padded(length) > s.log.size() {
			return nil
		}
		record := make([]byte, s.padded(length))
		if err := s.log.read(record, area, at); err != nil {
			return err
		}
		end := int64(valueHeader) + length
		sum := sha256.Sum256(record[:end])
		if subtle.ConstantTimeCompare(sum[:checkBytes], record[end:end+checkBytes]) != 1 {
			return nil
		}
		if s.length < 0 || newer(number, s.number) {
			s.number, s.at, s.length, s.log.area = number, at, length, area
		}
		at += int64(len(record))
	}
	return nil
}

// padded returns the size of a record in whole write blocks.
func (s *Store) padded(length int64) int64 {
	write := s.log.flash.WriteBlockSize()
	return (int64(valueHeader) + length + checkBytes + write - 1) / write * write
}

// Load returns the value, nil if there is none.
func (s *Store) Load() ([]byte, error) {
	if s.length < 0 {
		return nil, nil
	}
	value := make([]byte, s.length)
	return value, s.log.read(value, s.log.area, s.at+int64(valueHeader))
}

// Save replaces the value. After an error of the flash the old or the new one is there. An error of
// Kind TooLarge leaves the old one.
func (s *Store) Save(value []byte) error {
	size := s.padded(int64(len(value)))
	if size > s.log.size() {
		return fault(transport.TooLarge, "the value does not fit into the erase blocks of the Store; give it more of them")
	}
	s.number++ // before it can fail: a record that failed may be complete nevertheless
	record := make([]byte, 0, size)
	record = append(record, valueMagic...)
	record = binary.BigEndian.AppendUint32(record, s.number)
	record = binary.BigEndian.AppendUint32(record, uint32(len(value)))
	record = append(record, value...)
	sum := sha256.Sum256(record)
	record = append(record, sum[:checkBytes]...)
	for int64(len(record)) < size {
		record = append(record, 0xff)
	}
	if err := s.log.add(record); err != nil {
		return err
	}
	s.at, s.length = s.log.at-size, int64(len(value))
	return nil
}
