package outbox

import (
	"encoding/binary"
	"hash/crc32"
	"os"
)

// progress is what the mark says. Records below done are done; those below known were written, and
// synced unless Options.SyncEvery is negative. So records between them that no file has are lost.
type progress struct{ done, known uint64 }

// mark is the file "done" with the progress, in two slots with a checksum each. Its blocks are
// allocated from the beginning, so it can be written on a full disk. write uses one slot until
// synced reports that it is durable, and then the other, so a power cut damages at most one. An
// outdated mark causes duplicates only.
type mark struct {
	file  file
	slot  int64
	dirty bool            // slot has a whole mark that may not be durable
	good  [markSlots]bool // as openMark found them
}

const (
	markSize  = 20
	markSlot  = 4096 // each is one page of flash
	markSlots = 2
)

// openMark opens and reads the mark, creating it if needed.
func openMark(fs fileSystem, path string) (m *mark, p progress, err error) {
	f, err := fs.Open(path, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, p, err
	}
	m = &mark{file: f, dirty: true} // a killed process may have left the newer slot in the system's cache
	for slot := range int64(markSlots) {
		var b [markSize]byte
		if _, err := f.ReadAt(b[:], slot*markSlot); err != nil {
			continue // never written, or unreadable
		}
		read, ok := readMark(b)
		m.good[slot] = ok
		if ok && read.done >= p.done && read.known >= p.known {
			p, m.slot = read, slot
		}
	}
	return m, p, nil
}

// found reports whether the mark had a good slot.
func (m *mark) found() bool { return m.good[0] || m.good[1] }

// repair writes each slot that was not good over its full length. So an unreadable sector cannot
// come back later with an old number, and the blocks exist before the disk is full.
func (m *mark) repair(p progress) error {
	for slot := range int64(markSlots) {
		if m.good[slot] {
			continue
		}
		var b [markSlot]byte
		putMark(b[:], p)
		if _, err := m.file.WriteAt(b[:], slot*markSlot); err != nil && !isFull(err) {
			return err
		}
	}
	if m.file.Sync() == nil {
		m.synced()
	}
	return nil
}

func (m *mark) write(p progress) error {
	var b [markSize]byte
	putMark(b[:], p)
	_, err := m.file.WriteAt(b[:], m.slot*markSlot)
	m.dirty = err == nil
	return err
}

// synced must be called after a sync of the file, with no write since.
func (m *mark) synced() {
	if m.dirty {
		m.slot, m.dirty = 1-m.slot, false
	}
}

func putMark(b []byte, p progress) {
	binary.BigEndian.PutUint64(b, p.done)
	binary.BigEndian.PutUint64(b[8:], p.known)
	binary.BigEndian.PutUint32(b[16:], crc32.Checksum(b[:16], castagnoli))
}

func readMark(b [markSize]byte) (p progress, ok bool) {
	p = progress{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])}
	return p, max(p.done, p.known) < 2*maxNumber && binary.BigEndian.Uint32(b[16:]) == crc32.Checksum(b[:16], castagnoli)
}

// writeMark writes the mark if it is out of date.
func (q *Queue) writeMark() error {
	q.mu.Lock()
	q.markDue = false
	p := progress{q.done, max(q.known, q.done)}
	old := q.marked != p
	q.mu.Unlock()
	if !old {
		return nil
	}
	err := q.withMark(func() error { return q.mark.write(p) })
	q.mu.Lock()
	defer q.mu.Unlock()
	if err != nil {
		q.stats.MarkErrors++
		return err
	}
	q.marked = p
	return nil
}

// knownLocked records that the records of s below upTo are in the file for good. The mark is
// written once for each segment, so that Open misses one that is gone.
func (q *Queue) knownLocked(s *segment, upTo uint64) {
	q.known = max(q.known, upTo)
	if q.marked.known <= s.first {
		q.markDue = true
		q.kickLocked()
	}
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
