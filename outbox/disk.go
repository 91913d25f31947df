package outbox

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/hubline-iot/hubline/transport"
)

// kickLocked starts the writer if there is work for it and it does not exist.
func (q *Queue) kickLocked() {
	if !q.working && q.workLocked() {
		q.working = true
		go q.work()
	}
}

// workLocked reports whether the writer has work.
func (q *Queue) workLocked() bool {
	return len(q.trash) > 0 || len(q.pending) > 0 || q.markDue
}

// work is the writer.
func (q *Queue) work() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.workLocked() {
		switch {
		case len(q.trash) > 0: // it makes space for the others
			q.emptyTrash()
		case q.markDue:
			q.writeMark()
		default:
			q.writeBatch()
		}
	}
	q.working = false
	wake(&q.worked)
}

// unlocked calls f, which may block, without the mutex.
func (q *Queue) unlocked(f func() error) error {
	q.mu.Unlock()
	defer q.mu.Lock()
	return f()
}

// batchBytes bounds what is written in one go.
const batchBytes = 256 << 10

// writeBatch writes some of the pending records into the active segment. mu is held, and released
// meanwhile.
func (q *Queue) writeBatch() {
	s := q.active
	if s != nil && (s.lost != nil || s.next > s.first && s.size+int64(len(q.pending[0].record)) > q.opt.segmentBytes()) {
		q.seal()
		return
	}
	if s == nil {
		err := q.newActive()
		if isFull(err) && q.retryStuck() {
			return
		}
		if err != nil && len(q.pending) > 0 { // Puts may have given up meanwhile
			q.busy = q.takePending(1)
			q.refuse(q.idleLocked(), err)
		}
		return
	}
	q.busy = q.takePending(q.batchSize(s))
	batch := q.batch[:0]
	for i, p := range q.busy {
		p.segment, p.number = s, s.next+uint64(i)
		sealRecord(p.record, s.salt, s.size+int64(len(batch)), p.number)
		batch = append(batch, p.record...)
	}
	at := s.size
	err := q.unlocked(func() error { return q.write(s.file, batch, at) })
	q.batch = batch
	if err != nil {
		q.failBatch(s, err)
		return
	}
	s.size += int64(len(batch))
	s.next += uint64(len(q.busy))
	q.bytes += int64(len(batch))
	if first := q.busy[0].number; first > q.next {
		q.holes = append(q.holes, span{q.next, first}) // the spoiled ones
	}
	q.next, q.spoiled = s.next, 0
	wake(&q.grown)
	q.writtenLocked(s, q.idleLocked())
}

// write writes a batch. Where no fsync follows it asks whether the file is still there.
func (q *Queue) write(f file, batch []byte, at int64) error {
	if _, err := f.WriteAt(batch, at); err != nil {
		return err
	}
	if q.opt.SyncEvery == 0 {
		return nil
	}
	return linked(f)
}

// linked returns an error when f was deleted.
func linked(f file) error {
	ok, err := f.Linked()
	if err == nil && !ok {
		err = errDeleted
	}
	return err
}

// writtenLocked gives the batch its results, or leaves them to the syncer.
func (q *Queue) writtenLocked(s *segment, batch []*entrant) {
	switch every := q.opt.SyncEvery; {
	case s.lost != nil: // fsync failed meanwhile
		for _, p := range batch {
			q.settleLocked(p, s.lost)
		}
		return
	case every == 0:
		q.unsynced = append(q.unsynced, batch...)
		q.syncLocked()
		return
	case every > 0:
		q.syncLaterLocked()
	}
	for _, p := range batch {
		q.settleLocked(p, nil)
	}
}

// batchSize is how many of the pending records go into s in one go.
func (q *Queue) batchSize(s *segment) int {
	if q.solo > 0 {
		q.solo--
		return 1
	}
	size, n := int64(0), 0
	for n < len(q.pending) {
		size += int64(len(q.pending[n].record))
		if n > 0 && (size > batchBytes || s.size+size > q.opt.segmentBytes()) {
			break
		}
		n++
	}
	return n
}

// takePending takes some of the pending records. They count as pending until they are written.
func (q *Queue) takePending(n int) []*entrant {
	taken := append(q.taken[:0], q.pending[:n]...)
	q.taken = taken
	q.pending = slices.Delete(q.pending, 0, n)
	return taken
}

// idleLocked takes the batch from the writer. The caller has to settle or to requeue it.
func (q *Queue) idleLocked() []*entrant {
	batch := q.busy
	q.busy = nil
	for _, p := range batch {
		q.pendingBytes -= int64(len(p.record))
	}
	wake(&q.room)
	return batch
}

// failBatch deals with a failed write. The file is cut to its good records, so that its space and
// their numbers are free again. A batch is tried anew, one record at a time.
func (q *Queue) failBatch(s *segment, err error) {
	at := s.size
	cut := q.unlocked(func() error { return s.file.Truncate(at) })
	freed := cut == nil && isFull(err) && q.retryStuck()
	batch := q.idleLocked()
	switch {
	case cut != nil:
		// The file keeps parts of the batch, and the next Open may find records in them. So their
		// numbers are not used again, and the next message goes into another file.
		q.spoiled += uint64(len(batch))
		q.refuse(batch, err)
		q.seal()
	case isFull(err) && s.next > s.first && s.next <= q.done:
		q.removeFirstLocked() // all in it is done, and its space may do
		q.requeue(batch)
	case freed:
		q.requeue(batch)
	case len(batch) > 1:
		q.solo = len(batch)
		q.requeue(batch)
	default:
		q.refuse(batch, err)
	}
}

// requeue puts a batch back to the front.
func (q *Queue) requeue(batch []*entrant) {
	if q.closed {
		q.refuse(batch, errClosed)
		return
	}
	q.pending = slices.Insert(q.pending, 0, batch...)
	for _, p := range batch {
		q.pendingBytes += int64(len(p.record))
	}
}

// refuse gives a batch its error.
func (q *Queue) refuse(batch []*entrant, err error) {
	err = diskError(err)
	for _, p := range batch {
		q.settleLocked(p, err)
	}
}

// diskError is err for callers of Put.
func diskError(err error) error {
	switch {
	case transport.Find(err) != nil:
		return err
	case isFull(err):
		return &transport.Error{Kind: transport.Quota, Op: transport.OpSend,
			Err: fmt.Errorf("outbox: the disk is full; free space, or wait until messages are done: %w", err)}
	}
	return fmt.Errorf("outbox: %w", err)
}

// newActive makes the segment for the next record. mu is held, and released meanwhile.
func (q *Queue) newActive() error {
	first := q.next + q.spoiled
	if first > maxNumber {
		return errNumbers
	}
	var s *segment
	err := q.unlocked(func() (err error) {
		if err := linked(q.lock); err != nil { // a folder that was made anew is not locked
			return err
		}
		s, err = createSegment(q.fs, q.folder, first)
		return err
	})
	if err != nil {
		return err
	}
	q.segments = append(q.segments, s)
	q.active = s
	return nil
}

// seal ends writing to the active segment, after an fsync. mu is held, and released meanwhile.
func (q *Queue) seal() {
	s := q.active
	for q.active == s && (q.syncing || q.dirtyLocked(s)) {
		q.syncLocked()
		q.awaitLocked(&q.synced)
	}
	if q.active != s {
		return // it was dropped
	}
	q.active = nil
	f := s.file
	s.file = nil
	_ = q.unlocked(f.Close)
	q.passLocked(q.done) // it may be done, or empty
}

// dirtyLocked reports whether s has records that have to get to the disk.
func (q *Queue) dirtyLocked(s *segment) bool {
	return q.opt.SyncEvery >= 0 && s.lost == nil && s.synced < s.next
}

// awaitLocked waits for the next wake of ch. mu is released meanwhile.
func (q *Queue) awaitLocked(ch *chan struct{}) {
	woken := waitFor(ch)
	q.mu.Unlock()
	<-woken
	q.mu.Lock()
}

// retryStuck tries to remove the files that could not be removed before, whose space is needed. It
// reports whether one of them is gone. mu is held, and released meanwhile.
func (q *Queue) retryStuck() bool {
	n := len(q.stuck)
	if n == 0 {
		return false
	}
	q.emptyTrash()
	return len(q.stuck) < n
}

// emptyTrash closes and deletes segments. The mark is written before, so that the next Open knows
// where to begin. A file that stays is tried again with the next ones, when the disk is full, and
// by the next Open.
func (q *Queue) emptyTrash() {
	q.writeMark()
	for q.syncing { // the syncer may be at work on one of them
		q.awaitLocked(&q.synced)
	}
	trash := append(q.stuck, q.trash...)
	q.trash, q.stuck = nil, nil
	_ = q.unlocked(func() error {
		trash = slices.DeleteFunc(trash, func(s *segment) bool {
			if s.file != nil {
				_ = s.file.Close()
				s.file = nil
			}
			err := q.fs.Remove(s.path)
			return err == nil || errors.Is(err, os.ErrNotExist)
		})
		return nil
	})
	q.stuck = trash
	q.wantMark = true
	q.startSyncLocked()
}

// writeMark writes the mark if it is old. mu is held, and released meanwhile.
func (q *Queue) writeMark() {
	q.markDue = false
	if q.marked == q.done {
		return
	}
	done := q.done
	err := q.withMark(func() error { return q.mark.write(done) })
	if err != nil {
		q.stats.MarkErrors++
		return
	}
	q.marked = done
}

// withMark calls f without the mutex and with the mark for its own: a slot must not change while it
// is synced.
func (q *Queue) withMark(f func() error) error {
	for q.markBusy {
		q.awaitLocked(&q.markFree)
	}
	q.markBusy = true
	err := q.unlocked(f)
	q.markBusy = false
	wake(&q.markFree)
	return err
}

// shut is the last part of Close, which waits for it.
func (q *Queue) shut() {
	q.mu.Lock()
	for q.working {
		q.awaitLocked(&q.worked)
	}
	q.working = true // this goroutine is the writer from here on
	if s := q.active; s != nil {
		q.seal()
		q.closeErr = s.lost
	}
	q.mu.Unlock()
	q.running <- struct{}{} // for good
	q.reading <- struct{}{}

	q.mu.Lock()
	if len(q.trash) > 0 {
		q.emptyTrash()
	}
	q.writeMark()
	q.wantMark = q.opt.SyncEvery >= 0
	q.startSyncLocked()
	for q.syncing {
		q.awaitLocked(&q.synced)
	}
	q.mu.Unlock()
	q.release()
	close(q.gone)
}
