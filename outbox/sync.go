package outbox

import (
	"fmt"
	"os"
	"time"
)

// settled sees to it that the record with that number, in segment s, gets to the disk, as Options.SyncEvery says.
func (q *Queue) settled(s *segment, number uint64) error {
	switch every := q.opt.SyncEvery; {
	case every < 0:
		return nil
	case every > 0:
		q.syncLater(every)
		return nil
	}
	return q.sync(s, number)
}

// sync returns when the record is on the disk. Those who wait at the same time share one fsync: the first does it, for all that was written by then.
func (q *Queue) sync(s *segment, number uint64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for s.lost == nil && q.synced <= number {
		if q.syncing == nil {
			q.syncNow(s)
			continue
		}
		ended := q.syncing
		q.mu.Unlock()
		<-ended
		q.mu.Lock()
	}
	if s.lost != nil {
		return fmt.Errorf("outbox: %w", s.lost)
	}
	return nil
}

// syncNow forces the segment that is written to to the disk. mu is held, and let go meanwhile. After a failure nobody knows what the disk has, and a second try would say that all is well; so the segment is
// not written to any more.
func (q *Queue) syncNow(s *segment) {
	file, upTo := s.file, q.next
	q.syncing = make(chan struct{})
	q.mu.Unlock()
	err := file.Sync()
	q.mu.Lock()
	wake(&q.syncing)
	switch {
	case s.file == nil: // whoever ended it meanwhile has done the same, and knows better
	case err != nil:
		q.give(s, err)
	default:
		q.synced = max(q.synced, upTo)
	}
}

// syncLater arranges for a sync within every.
func (q *Queue) syncLater(every time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed: // Close does it
	case q.later == nil:
		q.later = time.AfterFunc(every, q.syncInTime)
		q.laterSet = true
	case !q.laterSet:
		q.later.Reset(every)
		q.laterSet = true
	}
}

func (q *Queue) syncInTime() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.laterSet = false
	if n := len(q.segments); n > 0 && q.segments[n-1].file != nil && !q.closed && q.syncing == nil && q.synced < q.next {
		q.syncNow(q.segments[n-1]) // the timer is its only caller; after a failure the next message goes into a new segment
	}
}

// syncFolder makes a new file's name safe.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
