package outbox

import (
	"slices"
	"time"
)

// syncLocked requests a sync of the active segment.
func (q *Queue) syncLocked() {
	q.wantSync = true
	q.startSyncLocked()
}

// startSyncLocked starts the syncer if there is work and it does not run.
func (q *Queue) startSyncLocked() {
	if !q.syncing && (q.wantSync || q.wantMark) {
		q.syncing = true
		go q.sync()
	}
}

// sync is the goroutine of the syncer. At most one runs: of two concurrent fsyncs only one would
// report a failure. Records written during an fsync share the next one.
func (q *Queue) sync() {
	for {
		q.mu.Lock()
		active, mark := q.wantSync, q.wantMark
		q.wantSync, q.wantMark, q.fsyncing = false, false, active
		if !active && !mark {
			q.syncing = false
			wake(&q.synced)
		}
		q.mu.Unlock()
		switch {
		case active:
			q.syncActive()
			q.mu.Lock()
			q.fsyncing = false
			q.kickLocked()
			q.mu.Unlock()
		case !mark:
			return
		}
		if mark {
			_ = q.syncMark() // an outdated mark causes duplicates only
		}
	}
}

// syncActive syncs the active segment. After a failure it is unknown what the disk has, and a
// second fsync would report success. So the segment gets no more records.
func (q *Queue) syncActive() {
	q.mu.Lock()
	s := q.active
	if s == nil || !q.dirtyLocked(s) {
		q.mu.Unlock()
		return
	}
	f, named, upTo := s.file, s.named, s.next
	q.mu.Unlock()
	began := time.Now()
	err := q.syncFile(f, named)
	q.mu.Lock()
	q.fsyncTook = time.Since(began)
	if err != nil {
		q.stats.SyncErrors++
		err, upTo = diskError(err), s.next
		s.lost = err
	} else {
		s.synced, s.named = upTo, true
		q.knownLocked(s, upTo)
	}
	q.settled = q.takeUnsyncedLocked(q.settled[:0], s, upTo, err)
	q.mu.Unlock()
	for _, p := range q.settled { // without the lock, which their next Puts need
		p.result <- err
	}
	clear(q.settled) // large records are not kept
}

// syncFile syncs f and, unless its name is durable, the folder.
func (q *Queue) syncFile(f file, named bool) error {
	if err := f.Sync(); err != nil {
		return err
	}
	if !named {
		if err := q.fs.SyncFolder(q.folder); err != nil {
			return err
		}
	}
	return q.attached(f)
}

// takeUnsyncedLocked moves the Puts of s that wait for an fsync, for records below upTo, to taken.
// Their result is err, which the caller sends to each.
func (q *Queue) takeUnsyncedLocked(taken []*entrant, s *segment, upTo uint64, err error) []*entrant {
	q.unsynced = slices.DeleteFunc(q.unsynced, func(p *entrant) bool {
		if p.segment != s || p.number >= upTo {
			return false
		}
		q.countLocked(p, err)
		taken = append(taken, p)
		return true
	})
	q.expected, q.released = len(taken)+len(q.pending), time.Now()
	return taken
}

// syncMark syncs the mark, unless Options.SyncEvery is negative.
func (q *Queue) syncMark() error {
	return q.withMark(func() (err error) {
		if q.opt.SyncEvery >= 0 {
			err = q.mark.file.Sync()
		}
		if err == nil {
			q.mark.synced()
		}
		return err
	})
}

// syncLaterLocked schedules a sync within Options.SyncEvery.
func (q *Queue) syncLaterLocked() {
	switch {
	case q.closed || q.laterSet: // Close syncs
		return
	case q.later == nil:
		q.later = time.AfterFunc(q.opt.SyncEvery, q.syncInTime)
	default:
		q.later.Reset(q.opt.SyncEvery)
	}
	q.laterSet = true
}

func (q *Queue) syncInTime() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.laterSet = false
	if !q.closed {
		q.syncLocked()
	}
}

// awaitSyncer waits for the end of the syncer.
func (q *Queue) awaitSyncer() {
	q.mu.Lock()
	for q.syncing {
		synced := waitFor(&q.synced)
		q.mu.Unlock()
		<-synced
		q.mu.Lock()
	}
	q.mu.Unlock()
}
