package outbox

import (
	"slices"
	"time"
)

// syncLocked has the active segment synced.
func (q *Queue) syncLocked() {
	q.wantSync = true
	q.startSyncLocked()
}

// startSyncLocked starts the syncer if there is work for it and it does not exist.
func (q *Queue) startSyncLocked() {
	if !q.syncing && (q.wantSync || q.wantMark) {
		q.syncing = true
		go q.sync()
	}
}

// sync is the syncer. There is one at most, so two fsyncs never run at the same time, of which only
// one would hear of a failure. Records that are written during an fsync share the next one.
func (q *Queue) sync() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.wantSync || q.wantMark {
		if q.wantSync {
			q.wantSync = false
			q.syncActive()
		}
		if q.wantMark {
			q.wantMark = false
			q.syncMark()
		}
	}
	q.syncing = false
	wake(&q.synced)
}

// syncActive syncs the active segment. mu is held, and released meanwhile. After a failure nobody
// knows what the disk has, and a second try would say that all is well. So nothing more is written
// to the segment.
func (q *Queue) syncActive() {
	s := q.active
	if s == nil || !q.dirtyLocked(s) {
		return
	}
	f, named, upTo := s.file, s.named, s.next
	err := q.unlocked(func() error {
		if err := f.Sync(); err != nil {
			return err
		}
		if !named {
			if err := q.fs.SyncFolder(q.folder); err != nil {
				return err
			}
		}
		return linked(f)
	})
	if err != nil {
		q.stats.SyncErrors++
		s.lost = diskError(err)
		q.settleUnsyncedLocked(s, s.next, s.lost)
		return
	}
	s.synced, s.named = upTo, true
	q.settleUnsyncedLocked(s, upTo, nil)
}

// settleUnsyncedLocked gives their results to the Puts of s that wait for fsync, below upTo.
func (q *Queue) settleUnsyncedLocked(s *segment, upTo uint64, err error) {
	q.unsynced = slices.DeleteFunc(q.unsynced, func(p *entrant) bool {
		if p.segment != s || p.number >= upTo {
			return false
		}
		q.settleLocked(p, err)
		return true
	})
}

// syncMark syncs the mark, unless Options.SyncEvery leaves all to the system. mu is held, and
// released meanwhile.
func (q *Queue) syncMark() {
	_ = q.withMark(func() (err error) {
		if q.opt.SyncEvery >= 0 {
			err = q.mark.file.Sync()
		}
		if err == nil {
			q.mark.synced()
		}
		return err
	})
}

// syncLaterLocked arranges for a sync within Options.SyncEvery.
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
