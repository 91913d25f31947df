package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Close ends Run, Flush and waiting Puts, and closes the files; waiting messages stay in them. It
// returns all failures of that, joined (errors.Join): of the last fsync, of the mark and of closing
// the files. If Run or the disk does not end within Options.CloseTimeout, it returns Timeout, and
// the folder stays locked until they have ended; another Close waits again.
func (q *Queue) Close() error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.end(errClosed)
		for _, p := range q.pending {
			q.settleLocked(p, errClosed)
		}
		q.pending = nil
		wake(&q.room)
		wake(&q.grown)
		wake(&q.ended)
		if q.later != nil {
			q.later.Stop()
		}
		go q.shut()
	}
	q.mu.Unlock()
	late := time.NewTimer(q.opt.CloseTimeout)
	defer late.Stop()
	select {
	case <-q.gone:
		return q.closeErr
	case <-late.C:
		return &transport.Error{Kind: transport.Timeout, Op: transport.OpClose,
			Err: errors.New("outbox: Run or the disk did not end within CloseTimeout")}
	}
}

// shut is the part of Close that uses the disk; Close waits for it.
func (q *Queue) shut() {
	var failures []error
	q.mu.Lock()
	for q.working {
		worked := waitFor(&q.worked)
		q.mu.Unlock()
		<-worked
		q.mu.Lock()
	}
	q.working = true // from here on this goroutine is the writer
	s := q.active
	q.mu.Unlock()
	if s != nil {
		err := q.seal()
		q.mu.Lock()
		failures = append(failures, s.lost)
		q.mu.Unlock()
		failures = append(failures, closing("messages", err))
	}
	q.running <- struct{}{} // never released
	q.reading <- struct{}{}

	q.mu.Lock()
	trash := len(q.trash) > 0
	q.mu.Unlock()
	if trash {
		q.emptyTrash()
	}
	failures = append(failures, closing("the mark", q.writeMark()))
	q.awaitSyncer() // from here on this goroutine is the syncer, too
	if q.opt.SyncEvery >= 0 {
		failures = append(failures, closing("the mark", q.syncMark()))
	}
	failures = append(failures, closing("the mark", q.mark.file.Close()), closing("the lock", q.lock.Close()))
	q.closeErr = errors.Join(failures...)
	close(q.gone)
}

// closing returns err as a failure of Close, nil if there is none.
func closing(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outbox: close: %s: %w", what, err)
}
