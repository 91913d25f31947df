package outbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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
	err := q.fsync(file)
	q.mu.Lock()
	wake(&q.syncing)
	switch {
	case s.file == nil: // whoever ended it meanwhile has done the same, and knows better
	case err != nil:
		q.stats.SyncErrors++
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
	if s := q.last(); s != nil && !q.closed && q.synced < q.next {
		q.syncNow(s) // the timer is its only caller; after a failure the next message goes into a new segment
	}
	if q.laterSet = !q.closed && q.synced < q.next; q.laterSet { // put meanwhile
		q.later.Reset(q.opt.SyncEvery)
	}
}

// makeFolder is os.MkdirAll, which makes the new folders' names safe.
func makeFolder(folder string) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	if _, err := os.Stat(folder); err == nil {
		return nil
	}
	parent := filepath.Dir(folder)
	if parent != folder {
		if err := makeFolder(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return syncFolder(parent)
}

// syncFolder makes a new file's name safe. Windows forces no folder to the disk: FlushFileBuffers denies access to one.
func syncFolder(folder string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
