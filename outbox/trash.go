package outbox

import (
	"errors"
	"os"
	"slices"
)

// emptyTrash closes and deletes segments. It writes and syncs the mark first, so that the next Open
// does not miss them. A file that cannot be removed is empty, and is retried with the next ones and
// by the next Open.
func (q *Queue) emptyTrash() {
	_ = q.writeMark() // counted
	q.mu.Lock()
	q.wantMark = true
	q.startSyncLocked()
	q.mu.Unlock()
	q.awaitSyncer() // it may use one of them, too
	q.mu.Lock()
	trash := append(q.stuck, q.trash...)
	q.trash, q.stuck = nil, nil
	q.mu.Unlock()

	trash = slices.DeleteFunc(trash, func(s *segment) bool {
		q.freeSpace(s)
		err := q.fs.Remove(s.path)
		return err == nil || errors.Is(err, os.ErrNotExist)
	})
	q.mu.Lock()
	q.stuck = trash
	q.mu.Unlock()
}

// freeSpace truncates and closes the file of s: a removed file keeps its space while Run has it
// open. A failure only delays that.
func (q *Queue) freeSpace(s *segment) {
	f := s.file
	s.file = nil
	if f == nil {
		var err error
		if f, err = q.fs.Open(s.path, os.O_RDWR); err != nil {
			return
		}
	}
	_ = f.Truncate(0)
	_ = f.Close()
}

// removeFirstLocked schedules the oldest segment for deletion; the writer calls emptyTrash. The
// decision is its callers': passLocked (queue.go) when all messages of a segment are done;
// makeRoomLocked (put.go) when MaxBytes is reached; endBatch (writer.go) when the disk is full.
func (q *Queue) removeFirstLocked() { q.removeLocked(0) }

func (q *Queue) removeLocked(i int) {
	s := q.segments[i]
	q.segments = slices.Delete(q.segments, i, i+1)
	q.bytes -= s.size
	if s == q.active {
		q.active = nil
	}
	q.trash = append(q.trash, s)
	for _, p := range q.takeUnsyncedLocked(nil, s, s.next, nil) {
		p.result <- nil // done messages need no fsync
	}
	wake(&q.room)
	wake(&q.grown) // Run may have the file open, which keeps its name on Windows
	q.kickLocked()
}
