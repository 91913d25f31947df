package outbox

import (
	"encoding/binary"
	"hash/crc32"
	"os"
)

// mark is the file "done": the number below which all records are done, in two slots with a
// checksum each. Its blocks are allocated from the beginning, so it can be written on a full disk.
// write uses one slot until synced reports that it is durable, and then the other, so a power cut
// damages at most one. An outdated mark causes duplicates only.
type mark struct {
	file file
	slot int64
}

const (
	markSize  = 12
	markSlot  = 4096 // each is one page of flash
	markSlots = 2
)

// openMark opens the mark, creating it if needed.
func openMark(fs fileSystem, path string) (m *mark, done uint64, err error) {
	f, err := fs.Open(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, 0, err
	}
	m = &mark{file: f}
	var good [markSlots]bool
	for slot := range int64(markSlots) {
		var b [markSize]byte
		if _, err := f.ReadAt(b[:], slot*markSlot); err != nil {
			continue // never written, or unreadable
		}
		n, ok := readMark(b)
		good[slot] = ok
		if ok && n >= done {
			done, m.slot = n, slot
		}
	}
	if err := m.allocate(good, done); err != nil && !isFull(err) {
		_ = f.Close()
		return nil, 0, err
	}
	if f.Sync() == nil { // a killed process may have left the newer slot in the system's cache
		m.synced()
	}
	return m, done, nil
}

// allocate writes each slot that is not good over its full length. So an unreadable sector cannot
// come back later with an old number, and the blocks exist before the disk is full.
func (m *mark) allocate(good [markSlots]bool, done uint64) error {
	for slot := range int64(markSlots) {
		if good[slot] {
			continue
		}
		var b [markSlot]byte
		putMark(b[:], done)
		if _, err := m.file.WriteAt(b[:], slot*markSlot); err != nil {
			return err
		}
	}
	return nil
}

// write records that all records below done are done.
func (m *mark) write(done uint64) error {
	var b [markSize]byte
	putMark(b[:], done)
	_, err := m.file.WriteAt(b[:], m.slot*markSlot)
	return err
}

// synced must be called after a sync of the file, with no write since.
func (m *mark) synced() { m.slot = 1 - m.slot }

func putMark(b []byte, done uint64) {
	binary.BigEndian.PutUint64(b, done)
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[:8], castagnoli))
}

func readMark(b [markSize]byte) (done uint64, ok bool) {
	done = binary.BigEndian.Uint64(b[:])
	return done, done < 2*maxNumber && binary.BigEndian.Uint32(b[8:]) == crc32.Checksum(b[:8], castagnoli)
}

// writeMark writes the mark if it is out of date.
func (q *Queue) writeMark() error {
	q.mu.Lock()
	q.markDue = false
	done, old := q.done, q.marked != q.done
	q.mu.Unlock()
	if !old {
		return nil
	}
	err := q.withMark(func() error { return q.mark.write(done) })
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.stats.MarkErrors++
		return err
	}
	q.marked = done
	return nil
}

// withMark calls f with exclusive use of the mark: a slot must not change while it is synced.
func (q *Queue) withMark(f func() error) error {
	q.mu.Lock()
	for q.markBusy {
		free := waitFor(&q.markFree)
		q.mu.Unlock()
		<-free
		q.mu.Lock()
	}
	q.markBusy = true
	q.mu.Unlock()
	err := f()
	q.mu.Lock()
	q.markBusy = false
	wake(&q.markFree)
	q.mu.Unlock()
	return err
}
