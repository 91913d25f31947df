package outbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// A Queue is an outbox in files. All methods are safe for concurrent use.
//
// Records are numbered from 0 for all time: those below done are done with, those below next were written. The segments hold what is between, the oldest first; the last one is written to, if it is open.
type Queue struct {
	folder string
	opt    Options
	lock   *os.File
	mark   *mark

	running chan struct{} // capacity 1: taken while Run runs
	fsync   func(*os.File) error

	life context.Context // ended by Close
	end  context.CancelCauseFunc

	mu       sync.Mutex // held for a system call at most, and not for an fsync
	segments []*segment
	bytes    int64 // of all segments
	next     uint64
	done     uint64
	marked   uint64 // what the mark says
	closed   bool
	gone     chan struct{} // closed when Close has done all
	stats    Stats

	synced   uint64        // records below are on the disk
	syncing  chan struct{} // closed when the fsync under way has ended; nil when there is none
	later    *time.Timer   // of SyncEvery; nil before its first use
	laterSet bool

	room  chan struct{} // closed when there may be room; nil while nobody waits
	grown chan struct{} // closed when there is a new record; nil while nobody waits
	ended chan struct{} // closed when a record is done; nil while nobody waits
}

// Stats are counts since Open, but for those of what waits.
type Stats struct {
	// Waiting is how many messages are in the files and not done, those with the client included, and Bytes what the files take.
	Waiting uint64
	Bytes   int64
	// Put is how many messages were accepted.
	Put uint64
	// Acknowledged is how many the hub has taken, Failed how many ended otherwise.
	Acknowledged, Failed uint64
	// Dropped is how many DropOldest gave up.
	Dropped uint64
	// Damaged is how many messages could not be read back. The end of a file that is not readable counts as one, whatever was in it: mostly a message that was being written when the power went.
	Damaged uint64
	// MarkErrors is how often the mark of what is done could not be written: after a crash more would be sent twice.
	MarkErrors uint64
	// SyncErrors is how often fsync failed. Where Put waits for it the Puts concerned have told; with SyncEvery a power cut might take messages of which nobody else tells.
	SyncErrors uint64
}

// Open opens the queue in folder, and makes it if there is none. It reads all that waits once. The error is of Kind Invalid for wrong options and for a folder that another Queue has, else the file system's.
func Open(folder string, o *Options) (*Queue, error) {
	opt, err := o.resolve()
	if err != nil {
		return nil, err
	}
	q := &Queue{folder: folder, opt: opt, running: make(chan struct{}, 1), fsync: (*os.File).Sync, gone: make(chan struct{})}
	q.life, q.end = context.WithCancelCause(context.Background())
	if err := q.load(); err != nil {
		q.release()
		if transport.Find(err) != nil {
			return nil, err
		}
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return q, nil
}

func (q *Queue) load() (err error) {
	if err := makeFolder(q.folder); err != nil {
		return err
	}
	if q.lock, err = os.OpenFile(filepath.Join(q.folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := lockFile(q.lock); err != nil {
		return invalid("another Queue has the folder " + q.folder + ", or no lock is to be had there (" + err.Error() + "); close that one, or give each its own")
	}
	if q.mark, q.done, err = openMark(filepath.Join(q.folder, "done")); err != nil {
		return err
	}
	entries, err := os.ReadDir(q.folder) // sorted by name, so by number
	if err != nil {
		return err
	}
	q.next = q.done
	for _, e := range entries {
		first, ok := numberOf(e.Name())
		if !ok {
			continue
		}
		s, err := loadSegment(filepath.Join(q.folder, e.Name()), first)
		if err != nil {
			return err
		}
		info, err := os.Stat(s.path)
		if err != nil {
			return err
		}
		if info.Size() > max(s.size, int64(len(magic))) { // nobody knows how many there are
			q.stats.Damaged++
		}
		switch {
		case s.next == s.first && info.Size() > int64(len(magic))+maxRecord: // it was more than a record that was being written
			if err := os.Rename(s.path, s.path+".damaged"); err != nil { // for people
				return err
			}
			continue
		case s.next == s.first || s.next <= q.done:
			if err := os.Remove(s.path); err != nil {
				return err
			}
			continue
		}
		if n := len(q.segments); n > 0 { // before the first one there may be others that are done, of which the mark has not heard
			if s.first > q.next {
				q.stats.Damaged += s.first - q.next
			}
			q.segments[n-1].next = min(q.segments[n-1].next, s.first) // behind a damaged length there may seem to be any number
		}
		q.segments = append(q.segments, s)
		q.bytes += s.size
		q.next = s.next
	}
	if len(q.segments) > 0 {
		q.done = max(q.done, q.segments[0].first)
	}
	q.synced, q.marked = q.next, q.done
	return nil
}

// release gives back what Open took.
func (q *Queue) release() {
	if q.mark != nil {
		_ = q.mark.file.Close()
	}
	if q.lock != nil {
		_ = q.lock.Close()
	}
}

// Put writes m into the files; nil means that it is as safe as Options.SyncEvery says, and m is the caller's again. When there is no room Options.Overflow says what happens; Block waits until ctx ends (Timeout). An
// error means that m was not accepted: Invalid, TooLarge, Closed, Timeout, Dropped, or the file system's. After an error of fsync nobody knows what the disk has, and the message may still be sent.
func (q *Queue) Put(ctx context.Context, m *transport.Message) error {
	if m == nil {
		return invalid("the message is nil")
	}
	if err := m.Validate(); err != nil {
		return err
	}
	record := appendMessage(make([]byte, recordHead, recordHead+64+m.Size()), m)
	if len(record) > recordHead+maxRecord {
		return transport.TooLargeError(len(record)-recordHead, maxRecord)
	}
	binary.BigEndian.PutUint32(record, uint32(len(record)-recordHead))
	for {
		s, number, room, err := q.write(record)
		switch {
		case err != nil:
			return err
		case room == nil:
			return q.settled(s, number)
		}
		select {
		case <-room:
		case <-ctx.Done():
			return &transport.Error{Kind: transport.Timeout, Op: transport.OpSend, Err: errors.Join(ctx.Err(), errFull.Err)}
		}
	}
}

// write appends a record, whose sum it fills in, to a segment. room is what to wait for if there is none.
func (q *Queue) write(record []byte) (s *segment, number uint64, room <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s := q.last(); s != nil && q.full(int64(len(record))) && q.dirty(s); s = q.last() {
		if q.syncing != nil { // of two fsyncs at the same time one only would hear of a failure
			return nil, 0, q.syncing, nil
		}
		q.syncNow(s)
	}
	if q.closed {
		return nil, 0, nil, errClosed
	}
	if !q.makeRoom(int64(len(record))) {
		if q.opt.Overflow != device.Block {
			return nil, 0, nil, errFull
		}
		return nil, 0, waitFor(&q.room), nil
	}
	if s, err = q.writable(int64(len(record))); err != nil {
		return nil, 0, nil, fmt.Errorf("outbox: %w", err)
	}
	number = q.next
	binary.BigEndian.PutUint32(record[4:], sum(number, record[recordHead:]))
	if err := s.append(record); err != nil {
		if s.cut() != nil { // the file is broken; the next message goes into another
			_ = q.fsync(s.file) // for those before
			q.give(s, err)
			if s.next == s.first { // that other one has its name
				q.segments = q.segments[:len(q.segments)-1]
				q.bytes -= s.size
			}
		}
		return nil, 0, nil, fmt.Errorf("outbox: %w", err)
	}
	q.next++
	q.bytes += int64(len(record))
	q.stats.Put++
	wake(&q.grown)
	return s, number, nil, nil
}

// makeRoom reports whether size more bytes fit, after what Overflow allows. mu is held.
func (q *Queue) makeRoom(size int64) bool {
	for q.bytes+size > q.opt.MaxBytes {
		switch {
		case len(q.segments) == 0:
			return false
		case q.segments[0].next <= q.done: // the one that is written to, and all in it is done
			q.removeFirst()
		case q.opt.Overflow == device.DropOldest:
			s := q.segments[0]
			q.stats.Dropped += s.next - max(q.done, s.first)
			q.done = s.next
			q.removeFirst()
			wake(&q.ended)
		default:
			return false
		}
	}
	return true
}

// removeFirst deletes the oldest segment. mu is held.
func (q *Queue) removeFirst() {
	q.writeMark() // while they are there they tell the same
	s := q.segments[0]
	if s.file != nil {
		q.give(s, nil)
	}
	_ = os.Remove(s.path) // if it stays, the next Open tries again: all in it is below done
	q.segments = slices.Delete(q.segments, 0, 1)
	q.bytes -= s.size
	wake(&q.room)
}

// dirty reports whether a segment that is written to has records that have to get to the disk before it is ended. mu is held.
func (q *Queue) dirty(s *segment) bool {
	return q.opt.SyncEvery >= 0 && s.next > max(q.synced, q.done)
}

// give ends writing to a segment after an fsync. mu is held.
func (q *Queue) give(s *segment, lost error) {
	_ = s.file.Close()
	s.file, s.lost = nil, lost
	q.synced = max(q.synced, s.next)
}

// last is the segment that is written to, nil if there is none. mu is held.
func (q *Queue) last() *segment {
	if n := len(q.segments); n > 0 && q.segments[n-1].file != nil {
		return q.segments[n-1]
	}
	return nil
}

// full reports whether size more bytes go into another segment than the last one. mu is held.
func (q *Queue) full(size int64) bool {
	s := q.last()
	return s != nil && s.size+size > q.opt.segmentBytes() && s.next > s.first
}

// writable is the segment for the next record. mu is held.
func (q *Queue) writable(size int64) (*segment, error) {
	if s := q.last(); s != nil {
		if !q.full(size) {
			return s, nil
		}
		q.give(s, nil)
	}
	s, err := createSegment(q.folder, q.next)
	if err != nil {
		return nil, err
	}
	if err := syncFolder(q.folder); err != nil {
		_ = s.file.Close()
		return nil, err
	}
	q.segments = append(q.segments, s)
	q.bytes += s.size
	return s, nil
}

// finish notes the result of the record with that number: all before it are done too. quiet says that no further result is about to come.
func (q *Queue) finish(number uint64, result error, quiet bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch result {
	case nil:
		q.stats.Acknowledged++
	case errDamaged:
		q.stats.Damaged++
	default:
		q.stats.Failed++
	}
	q.pass(number + 1)
	const markEvery = 64
	if quiet || q.done-q.marked >= markEvery {
		q.writeMark()
	}
}

// pass notes that all records below number are done. mu is held.
func (q *Queue) pass(number uint64) {
	q.done = max(q.done, number)
	for len(q.segments) > 0 && q.segments[0].file == nil && q.segments[0].next <= q.done {
		q.removeFirst()
	}
	wake(&q.ended)
	wake(&q.room) // for the segment that is written to may be done with
}

// writeMark is called with mu held.
func (q *Queue) writeMark() {
	if q.marked == q.done {
		return
	}
	if err := q.mark.write(q.done); err != nil {
		q.stats.MarkErrors++
		return
	}
	q.marked = q.done
}

// Stats returns the counts.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Waiting, s.Bytes = q.next-q.done, q.bytes
	return s
}

// Flush waits until all that was put before the call is done, for which Run has to run. It returns ctx's error when ctx ends first, and Closed when the queue is closed.
func (q *Queue) Flush(ctx context.Context) error {
	q.mu.Lock()
	upTo := q.next
	for q.done < upTo && !q.closed {
		ended := waitFor(&q.ended)
		q.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
		q.mu.Lock()
	}
	defer q.mu.Unlock()
	if q.done < upTo {
		return errClosed
	}
	return nil
}

// Close ends Run, Flush and what waits in Put, and closes the files; what waits stays in them. It returns when Run has returned.
func (q *Queue) Close() error {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		<-q.gone
		return nil
	}
	defer close(q.gone)
	q.closed = true
	q.end(errClosed)
	wake(&q.room)
	wake(&q.grown)
	wake(&q.ended)
	if q.later != nil {
		q.later.Stop()
	}
	q.mu.Unlock()
	q.running <- struct{}{} // for good

	q.mu.Lock()
	defer q.mu.Unlock()
	var err error
	for s := q.last(); s != nil; s = q.last() {
		switch {
		case q.syncing != nil: // what Put waits for is done first
			syncing := q.syncing
			q.mu.Unlock()
			<-syncing
			q.mu.Lock()
		case q.dirty(s):
			q.syncNow(s)
			err = s.lost
		default:
			q.give(s, nil)
		}
	}
	q.writeMark()
	q.release()
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	return nil
}

// wake lets those who wait on *ch go on.
func wake(ch *chan struct{}) {
	if *ch != nil {
		close(*ch)
		*ch = nil
	}
}

// waitFor is what to wait on until the next wake.
func waitFor(ch *chan struct{}) <-chan struct{} {
	if *ch == nil {
		*ch = make(chan struct{})
	}
	return *ch
}
