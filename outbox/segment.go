package outbox

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A segment is a file of records. Its name is the number of its first record, in 16 hexadecimal
// digits, and its salt, in 8. The Queue's mutex guards all fields, but not the file's contents.
type segment struct {
	path   string
	salt   uint32
	first  uint64 // number of the first record
	next   uint64 // number behind the last
	synced uint64 // records below are durable
	named  bool   // its name is durable
	size   int64  // bytes of the records
	file   file   // nil once the segment is not written to any more
	lost   error  // the error of a failed fsync: it is unknown which records the disk has
}

const suffix = ".messages"

// maxNumber is the maximum number in a name. Only foreign files have larger ones, which would
// overflow and hide messages.
const maxNumber = 1 << 62

func segmentName(first uint64, salt uint32) string {
	return digits(first, 16) + "-" + digits(uint64(salt), 8) + suffix
}

func digits(n uint64, width int) string {
	s := strconv.FormatUint(n, 16)
	return strings.Repeat("0", width-len(s)) + s
}

// parseName parses a segment's name.
func parseName(name string) (first uint64, salt uint32, ok bool) {
	left, ok := strings.CutSuffix(name, suffix)
	if !ok || len(left) != 16+1+8 || left[16] != '-' {
		return 0, 0, false
	}
	first, err := strconv.ParseUint(left[:16], 16, 64)
	if err != nil || first > maxNumber {
		return 0, 0, false
	}
	low, err := strconv.ParseUint(left[17:], 16, 32)
	return first, uint32(low), err == nil
}

// createSegment makes an empty segment for records from number first on.
func createSegment(fs fileSystem, folder string, first uint64) (*segment, error) {
	salt := rand.Uint32()
	path := filepath.Join(folder, segmentName(first, salt))
	f, err := fs.Open(path, os.O_CREATE|os.O_EXCL|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	return &segment{path: path, salt: salt, first: first, next: first, synced: first, file: f}, nil
}

// linked returns an error if f was deleted or moved.
func linked(f file) error {
	ok, err := f.Linked()
	if err == nil && !ok {
		err = errDeleted
	}
	return err
}

// attached returns an error if f was deleted or moved, or the file with the lock: another Queue may
// have the folder then, and not know of a record that is written now.
func (q *Queue) attached(f file) error {
	if err := linked(q.lock); err != nil {
		return err
	}
	return linked(f)
}

// newActive makes a new active segment.
func (q *Queue) newActive() error {
	q.mu.Lock()
	first := q.next + q.spoiled
	q.mu.Unlock()
	if first > maxNumber {
		return errNumbers
	}
	if err := linked(q.lock); err != nil { // a folder that was made again is not locked
		return err
	}
	s, err := createSegment(q.fs, q.folder, first)
	if err != nil {
		return err
	}
	q.mu.Lock()
	q.segments = append(q.segments, s)
	q.active = s
	q.mu.Unlock()
	return nil
}

// seal ends writing to the active segment, if any, after an fsync. The error is that of closing the
// file.
func (q *Queue) seal() error {
	f := q.sealed()
	if f == nil {
		return nil
	}
	err := f.Close()
	q.mu.Lock()
	q.passLocked(q.done) // it may be done, or empty
	q.mu.Unlock()
	return err
}

// discard removes a sealed segment whose fsync failed, if none of its messages is safe: all Puts
// returned the error, and each of the next ones would leave another file. The numbers are not used
// again, because the disk may still have the file after a power cut.
func (q *Queue) discard(s *segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.segments, s)
	if i < 0 || s.lost == nil || q.opt.SyncEvery != 0 || s.synced > s.first {
		return
	}
	if last := len(q.holes) - 1; last >= 0 && q.holes[last].to == s.first {
		q.holes[last].to = s.next
	} else {
		q.holes = append(q.holes, span{s.first, s.next})
	}
	q.removeLocked(i)
	wake(&q.ended)
}

// sealed syncs the active segment and returns its file, which the caller closes; nil if there is no
// active segment, or it was dropped.
func (q *Queue) sealed() file {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.active
	if s == nil {
		return nil
	}
	for q.active == s && (q.syncing || q.dirtyLocked(s)) {
		q.syncLocked()
		synced := waitFor(&q.synced)
		q.mu.Unlock()
		<-synced
		q.mu.Lock()
	}
	if q.active != s {
		return nil
	}
	q.active = nil
	f := s.file
	s.file = nil
	return f
}

// dirtyLocked reports whether s has records that must still be synced.
func (q *Queue) dirtyLocked(s *segment) bool {
	return q.opt.SyncEvery >= 0 && s.lost == nil && s.synced < s.next
}
