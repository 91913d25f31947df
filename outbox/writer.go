package outbox

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// kickLocked starts the writer if there is work and it does not run.
func (q *Queue) kickLocked() {
	if !q.working && (len(q.trash) > 0 || q.batchDueLocked() || q.markDue) {
		q.working = true
		go q.work()
	}
}

// batchDueLocked reports whether pending records may be written. While an fsync runs that Puts wait
// for, the next ones gather, so that one fsync is enough for all callers.
func (q *Queue) batchDueLocked() bool {
	return len(q.pending) > 0 && (q.opt.SyncEvery != 0 || !q.wantSync && !q.fsyncing)
}

// work is the goroutine of the writer.
func (q *Queue) work() {
	for q.workOnce() {
		continue
	}
}

// workOnce does one piece of work, and reports whether there was any.
func (q *Queue) workOnce() bool {
	q.mu.Lock()
	trash, mark, batch := len(q.trash) > 0, q.markDue, q.batchDueLocked()
	if len(q.pending) == 0 && len(q.unsynced) > 0 && !q.fsyncing {
		q.syncLocked()
	}
	if !trash && !mark && !batch {
		q.working = false
		wake(&q.worked)
	}
	q.mu.Unlock()
	switch {
	case trash: // first, because it frees space
		q.emptyTrash()
	case mark:
		_ = q.writeMark() // counted
	case batch:
		q.gather()
		q.writeBatch()
		runtime.Gosched() // callers may put again at once
	default:
		return false
	}
	return true
}

// gather lets the callers that the last fsync has released put their next messages, if they do so
// at once. Without it they would split into two groups that wait for each other's fsyncs. It ends
// when nobody has put anything for a fourth of the time of an fsync, or for 1 ms.
func (q *Queue) gather() {
	q.mu.Lock()
	defer q.mu.Unlock()
	pause := min(q.fsyncTook/4, time.Millisecond)
	for seen := 0; len(q.pending) < q.expected && len(q.pending) > seen && time.Since(q.released) < pause; {
		seen = len(q.pending)
		complete := waitFor(&q.complete)
		over := time.NewTimer(pause)
		q.mu.Unlock()
		select {
		case <-complete:
		case <-over.C:
		}
		over.Stop()
		q.mu.Lock()
		if len(q.pending) > seen {
			q.released = time.Now()
		}
	}
	q.expected = 0
}

// batchBytes is the maximum size of one write.
const batchBytes = 256 << 10

// writeBatch writes pending records into the active segment.
func (q *Queue) writeBatch() {
	q.mu.Lock()
	s := q.active
	switch {
	case len(q.pending) == 0: // their Puts gave up
		q.mu.Unlock()
		return
	case s == nil:
		q.mu.Unlock()
		q.beginSegment()
		return
	case s.lost != nil || s.next > s.first && s.size+int64(len(q.pending[0].record)) > q.opt.segmentBytes():
		q.mu.Unlock()
		_ = q.seal() // its records were synced
		q.discard(s)
		return
	}
	q.busy = q.takePendingLocked(q.batchSizeLocked(s))
	batch := q.batch[:0]
	for i, p := range q.busy {
		p.segment, p.number = s, s.next+uint64(i)
		sealRecord(p.record, s.salt, s.size+int64(len(batch)), p.number)
		batch = append(batch, p.record...)
	}
	f, at := s.file, s.size
	q.mu.Unlock()

	err := q.write(f, batch, at)
	q.batch = batch
	if err != nil {
		q.failBatch(s, err)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s.size += int64(len(batch))
	s.next += uint64(len(q.busy))
	q.bytes += int64(len(batch))
	if first := q.busy[0].number; first > q.next {
		q.holes = append(q.holes, span{q.next, first}) // the unused numbers
	}
	if q.done >= q.next {
		q.front = time.Now()
	}
	q.next, q.spoiled = s.next, 0
	wake(&q.grown)
	q.writtenLocked(s, q.idleLocked())
}

// beginSegment makes the active segment. If that fails, so does the first pending Put.
func (q *Queue) beginSegment() {
	err := q.newActive()
	if err == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.pending) > 0 { // Puts may have given up meanwhile
		q.busy = q.takePendingLocked(1)
		q.refuseLocked(q.idleLocked(), err)
	}
}

// lookEvery is the least time between two checks that the active segment is still attached. A check
// takes longer than the write of a small message.
const lookEvery = time.Millisecond

// write writes a batch. If no fsync follows, it checks that the file is still attached.
func (q *Queue) write(f file, batch []byte, at int64) error {
	if _, err := f.WriteAt(batch, at); err != nil {
		return err
	}
	now := time.Now()
	if q.opt.SyncEvery == 0 || now.Sub(q.lookedAt) < lookEvery {
		return nil
	}
	if err := q.attached(f); err != nil {
		return err
	}
	q.lookedAt = now
	return nil
}

// writtenLocked settles a written batch, or leaves that to the syncer.
func (q *Queue) writtenLocked(s *segment, batch []*entrant) {
	switch every := q.opt.SyncEvery; {
	case s.lost != nil: // an fsync failed meanwhile
		for _, p := range batch {
			q.settleLocked(p, s.lost)
		}
		return
	case every == 0:
		q.unsynced = append(q.unsynced, batch...) // the writer has them synced when nothing is pending
		return
	case every > 0:
		q.syncLaterLocked()
	default:
		q.knownLocked(s, s.next)
	}
	for _, p := range batch {
		q.settleLocked(p, nil)
	}
}

// batchSizeLocked returns how many of the pending records go into s in one write.
func (q *Queue) batchSizeLocked(s *segment) int {
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

// takePendingLocked takes n pending records. Their bytes count as pending until they are written.
func (q *Queue) takePendingLocked(n int) []*entrant {
	taken := append(q.taken[:0], q.pending[:n]...)
	q.taken = taken
	q.pending = slices.Delete(q.pending, 0, n)
	return taken
}

// idleLocked takes the batch from the writer. The caller must settle or requeue it.
func (q *Queue) idleLocked() []*entrant {
	batch := q.busy
	q.busy = nil
	for _, p := range batch {
		q.pendingBytes -= int64(len(p.record))
	}
	wake(&q.room)
	return batch
}

// failBatch handles a failed write. It truncates the file to the good records, so that the space
// and the numbers are free again. The records of the batch are then written one at a time.
func (q *Queue) failBatch(s *segment, err error) {
	cut := s.file.Truncate(s.size)
	if !q.endBatch(s, err, cut != nil) {
		return
	}
	_ = q.seal()
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.segments, s); i >= 0 && s.next == s.first { // each Put would leave a file
		q.removeLocked(i)
	}
}

// endBatch settles or requeues the records of a batch that failed with err. spoiled means that the
// file keeps parts of them. It reports whether s must be sealed.
func (q *Queue) endBatch(s *segment, err error, spoiled bool) (seal bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	batch := q.idleLocked()
	switch {
	case spoiled:
		// The next Open may find these records in the file. So their numbers are not reused, and the next
		// message goes into another file.
		q.spoiled += uint64(len(batch))
		q.refuseLocked(batch, err)
		return true
	case isFull(err) && s.next > s.first && s.next <= q.done:
		q.removeFirstLocked() // all its messages are done, and its space may suffice
		q.requeueLocked(batch)
	case len(batch) > 1:
		q.solo = len(batch)
		q.requeueLocked(batch)
	default:
		q.refuseLocked(batch, err)
	}
	return false
}

// requeueLocked puts a batch back at the front of pending.
func (q *Queue) requeueLocked(batch []*entrant) {
	if q.closed {
		q.refuseLocked(batch, errClosed)
		return
	}
	q.pending = slices.Insert(q.pending, 0, batch...)
	for _, p := range batch {
		q.pendingBytes += int64(len(p.record))
	}
}

// refuseLocked settles a batch with err.
func (q *Queue) refuseLocked(batch []*entrant, err error) {
	err = diskError(err)
	for _, p := range batch {
		q.settleLocked(p, err)
	}
}

// diskError converts err for callers of Put.
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
