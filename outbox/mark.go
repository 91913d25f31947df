package outbox

import (
	"encoding/binary"
	"hash/crc32"
	"os"
)

// mark is the file "done": the number up to which all records are done, twice, with a checksum each. They are written in turn, so one is whole at any moment. A mark that is older than the truth costs
// duplicates, so it is not forced to the disk.
type mark struct {
	file *os.File
	turn int64
}

const (
	markSize  = 12
	markApart = 512 // a sector each
)

func openMark(path string) (m *mark, done uint64, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, 0, err
	}
	m = &mark{file: f}
	for turn := range int64(2) {
		var b [markSize]byte
		if _, err := f.ReadAt(b[:], turn*markApart); err != nil {
			continue // it was never written, or is cut short
		}
		n := binary.BigEndian.Uint64(b[:])
		if binary.BigEndian.Uint32(b[8:]) == crc32.Checksum(b[:8], castagnoli) && n > done {
			done, m.turn = n, 1-turn
		}
	}
	return m, done, nil
}

func (m *mark) write(done uint64) error {
	var b [markSize]byte
	binary.BigEndian.PutUint64(b[:], done)
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli))
	_, err := m.file.WriteAt(b[:], m.turn*markApart)
	m.turn = 1 - m.turn
	return err
}
