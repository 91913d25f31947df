package outbox

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/transport"
)

// A Queue is an outbox in files. Make one with Open, and call Close when it is no longer needed.
// All methods are safe for concurrent use. A stalled disk holds up no call for longer than its
// context or CloseTimeout.
type Queue struct {
	// Records are numbered from 0 and numbers are never reset. Those below done are done, those below
	// next were written. The segments hold the records between, the oldest first; the last segment
	// may be active.
	//
	// No method uses the disk directly, so a stalled disk blocks no caller. Two goroutines do, and
	// exist only while there is work: the writer (writer.go) writes, creates, closes and removes
	// files; only the syncer (sync.go) calls fsync. Run has a third goroutine for reading.

	fs     fileSystem
	folder string
	opt    Options
	lock   file
	mark   *mark

	running chan struct{} // capacity 1: taken while Run runs
	reading chan struct{} // capacity 1: taken while a file is read

	life     context.Context // ended by Close
	end      context.CancelCauseFunc
	gone     chan struct{} // closed when no goroutine of the queue runs any more
	closeErr error         // set before gone is closed
	idsMu    sync.Mutex
	ids      messageid.Source
	entrants sync.Pool // per Queue, because channels belong to a synctest bubble

	mu       sync.Mutex // never held during a system call
	segments []*segment
	active   *segment // the last segment while it is written to, or nil
	bytes    int64    // of all segments
	next     uint64
	done     uint64
	front    time.Time // since when the first waiting message has been the first
	known    uint64    // records below were written for good
	marked   progress  // in the mark
	holes    []span    // numbers without a message
	closed   bool
	stats    Stats
	stop     error  // why the last Run ended; nil while one runs, and before the first
	silent   uint64 // removed without an acknowledgement, and OnFailed was not called
	told     uint64 // those of them that a Flush has reported
	silence  error  // why the last of them was removed

	pending      []*entrant // waiting for the writer
	busy         []*entrant // being written
	pendingBytes int64      // of both
	solo         int        // this many of the next pending ones are written one at a time
	spoiled      uint64     // this many numbers from next on are unusable
	unsynced     []*entrant // written, waiting for the syncer
	settled      []*entrant // syncer only: buffer of those that it releases
	trash, stuck []*segment // to be removed; could not be removed
	working      bool       // the writer runs
	markDue      bool       // the mark must be written
	taken        []*entrant // writer only: buffer of busy
	batch        []byte     // writer only: the bytes to write
	lookedAt     time.Time  // writer only: when the active segment was last seen attached

	// Callers that may put at once: those that the last fsync released, and the pending ones.
	expected  int
	released  time.Time     // when that was, or the last of them put
	fsyncTook time.Duration // how long it took
	complete  chan struct{} // closed when all of them have put

	syncing  bool // the syncer runs
	fsyncing bool // it syncs the active segment
	wantSync bool // the active segment must be synced
	wantMark bool // the mark must be synced
	markBusy bool // the mark is being written or synced
	later    *time.Timer
	laterSet bool

	room   chan struct{} // closed when there may be room
	grown  chan struct{} // closed when there is a new record
	ended  chan struct{} // closed when a record is done
	worked chan struct{} // closed when the writer has ended
	synced chan struct{} // closed when the syncer has ended

	markFree chan struct{} // closed when the mark is free again
}

// Stats are counters since Open, except Waiting, Bytes and Stalled, which describe the files.
type Stats struct {
	// Waiting is the number of readable messages in the files that are not done, including those
	// handed to the client. Bytes is the size of the files.
	Waiting uint64
	Bytes   int64
	// Stalled is for how long the same message has been the first of the waiting ones: at least its
	// age since Open. It grows while nothing is acknowledged. 0: none waits.
	Stalled time.Duration
	// Put is the number of messages for which Put returned nil.
	Put uint64
	// Acknowledged is the number of messages that the hub acknowledged, Failed of those with another
	// result.
	Acknowledged, Failed uint64
	// Dropped is the number of messages that DropOldest dropped.
	Dropped uint64
	// Damaged is the number of messages that Open or Run could not read, also because a file is gone.
	// Of those at the end of the last file Open knows the number after a Close; otherwise it may count
	// them as one. Often that is a message that was being written when the power failed, or one whose
	// Put returned an error, because a file may have parts of it.
	Damaged uint64
	// MarkErrors counts failed writes of the mark, the number of done messages in the file "done".
	// They cause more duplicates after a crash.
	MarkErrors uint64
	// SyncErrors counts failed fsyncs. With SyncEvery, a power cut may lose the messages concerned
	// although their Puts returned nil; without it those Puts returned the error.
	SyncErrors uint64
}

// Open opens the queue in folder, and makes the folder if needed. It reads all waiting messages
// once. The error is of Kind Invalid for wrong options, an empty folder name and a folder in use by
// another Queue, of Kind Unsupported on a system without file locks and for waiting messages in a
// format that this version of the package does not know, and otherwise the file system's.
func Open(folder string, o *Options) (*Queue, error) { return openOn(osFS{}, folder, o) }

func openOn(fs fileSystem, folder string, o *Options) (*Queue, error) {
	opt, err := o.resolve()
	if err != nil {
		return nil, err
	}
	if folder == "" {
		return nil, invalid("open: the folder's name is empty; give each outbox a folder of its own")
	}
	folder, err = filepath.Abs(folder) // the program may change its own folder later
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	q := &Queue{fs: fs, folder: folder, opt: opt, gone: make(chan struct{}), ids: messageid.NewSource(opt.MessageIDPrefix)}
	q.running, q.reading = make(chan struct{}, 1), make(chan struct{}, 1)
	q.life, q.end = context.WithCancelCause(context.Background())
	if err := q.load(); err != nil {
		q.release()
		if transport.Find(err) != nil {
			return nil, err
		}
		return nil, fmt.Errorf("outbox: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.front = time.Now()
	q.passLocked(q.done) // the previous process may have left files that are done
	return q, nil
}

// release closes the mark and releases the lock.
func (q *Queue) release() {
	if q.mark != nil {
		_ = q.mark.file.Close()
	}
	if q.lock != nil {
		_ = q.lock.Close()
	}
}

// finish records the result of a record. All records before it are done too; those from from to
// number-1 were not found. quiet means that no further result follows at once.
func (q *Queue) finish(from, number uint64, result error, quiet bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	missing := span{from, number}
	switch {
	case result == nil:
		q.stats.Acknowledged++
	case errors.Is(result, errDamaged):
		missing.to++
	default:
		q.stats.Failed++
		if q.opt.OnFailed == nil {
			q.silentLocked(1, result)
		}
	}
	if missing.from = max(missing.from, q.done); missing.from < missing.to {
		n := missing.to - missing.from - q.holesIn(missing.from, missing.to)
		q.stats.Damaged += n
		q.silentLocked(n, errDamaged)
	}
	q.passLocked(number + 1)
	const markEvery = 64
	if quiet || q.done-q.marked.done >= markEvery {
		q.markDue = true
		q.kickLocked()
	}
}

// passLocked records that all records below number are done.
func (q *Queue) passLocked(number uint64) {
	if number > q.done {
		q.done, q.front = number, time.Now()
	}
	for len(q.segments) > 0 && q.segments[0] != q.active && q.segments[0].next <= q.done {
		q.removeFirstLocked()
	}
	wake(&q.ended)
	wake(&q.room) // the active segment may be done
}

// Stats returns counters and levels. It does not wait for the disk.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Waiting, s.Bytes = q.waitingLocked(q.next), q.bytes
	if s.Waiting > 0 {
		s.Stalled = time.Since(q.front)
	}
	return s
}

// Flush waits until all messages put before the call are done. It returns Run's error if Run ends
// before that or has ended, Cancelled when ctx ends first, and Closed when the queue is closed. Run
// may begin after Flush.
//
// Flush returns an error if messages were removed without an acknowledgement since the last Flush
// that said so: their number, and the reason for the last one with its Kind. These are messages
// that DropOldest dropped, that Run could not read, and that failed while there is no
// Options.OnFailed. So nil means that the hub has the messages, except for those that OnFailed got
// and those that Open has counted in Stats.Damaged.
func (q *Queue) Flush(ctx context.Context) error {
	q.mu.Lock()
	upTo, told := q.next, q.told
	for q.waitingLocked(upTo) > 0 && !q.closed && q.stop == nil {
		ended := waitFor(&q.ended)
		q.mu.Unlock()
		select {
		case <-ended:
		case <-ctx.Done():
			return gaveUp(ctx, nil)
		}
		q.mu.Lock()
	}
	defer q.mu.Unlock()
	switch {
	case q.waitingLocked(upTo) == 0:
		return q.removedLocked(told)
	case q.closed:
		return errClosed
	}
	return q.stop
}

// waitingLocked returns the number of messages below upTo that are not done.
func (q *Queue) waitingLocked(upTo uint64) uint64 {
	return max(q.done, upTo) - q.done - q.holesIn(q.done, upTo)
}

// silentLocked records n messages that were removed without an acknowledgement, for Flush.
func (q *Queue) silentLocked(n uint64, why error) {
	if n > 0 {
		q.silent += n
		q.silence = why
	}
}

// removedLocked returns the error for messages that were removed without an acknowledgement. told
// is q.told when Flush began: concurrent calls all report them.
func (q *Queue) removedLocked(told uint64) error {
	n := q.silent - told
	q.told = q.silent
	if n == 0 {
		return nil
	}
	return &transport.Error{Kind: transport.KindOf(q.silence), Op: transport.OpSend,
		Err: fmt.Errorf("outbox: messages removed without an acknowledgement: %d; Stats counts them by reason, and "+
			"OnFailed gets each that failed; the last: %w", n, q.silence)}
}

// wake wakes all goroutines that wait on *ch.
func wake(ch *chan struct{}) {
	if *ch != nil {
		close(*ch)
		*ch = nil
	}
}

// waitFor returns a channel that the next wake closes.
func waitFor(ch *chan struct{}) <-chan struct{} {
	if *ch == nil {
		*ch = make(chan struct{})
	}
	return *ch
}
