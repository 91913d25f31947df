package outbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// A Queue is an outbox in files. All methods are safe for concurrent use.
//
// Records are numbered from 0 and numbers are never reset. Those below done are done, those below
// next were written. The segments hold the records between, the oldest first; the last segment may
// be active.
//
// No method uses the disk directly, so a stalled disk blocks no caller. Two goroutines do, and
// exist only while there is work: the writer (disk.go) writes, creates, closes and removes files;
// only the syncer (sync.go) calls fsync. Run has a third goroutine for reading.
type Queue struct {
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
	marked   uint64 // the number in the mark
	holes    []span // numbers without a message
	closed   bool
	stats    Stats

	pending      []*entrant // waiting for the writer
	busy         []*entrant // being written
	pendingBytes int64      // of both
	solo         int        // this many of the next pending ones are written one at a time
	spoiled      uint64     // this many numbers from next on are unusable
	unsynced     []*entrant // written, waiting for the syncer
	trash, stuck []*segment // to be removed; could not be removed
	working      bool       // the writer runs
	markDue      bool       // the mark must be written
	taken        []*entrant // writer only: buffer of busy
	batch        []byte     // writer only: the bytes to write

	syncing  bool // the syncer runs
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

// Stats are counters since Open, except Waiting and Bytes, which describe the files.
type Stats struct {
	// Waiting is the number of readable messages in the files that are not done, including those
	// handed to the client. Bytes is the size of the files.
	Waiting uint64
	Bytes   int64
	// Put is the number of messages for which Put returned nil.
	Put uint64
	// Acknowledged is the number of messages that the hub acknowledged, Failed of those with another
	// result.
	Acknowledged, Failed uint64
	// Dropped is the number of messages that DropOldest dropped.
	Dropped uint64
	// Damaged is the number of messages that Open or Run could not read. The unreadable end of the
	// last file counts as one, because its messages have no known number; usually it is a message that
	// was being written when the power failed.
	Damaged uint64
	// MarkErrors counts failed writes of the mark. They cause more duplicates after a crash.
	MarkErrors uint64
	// SyncErrors counts failed fsyncs. With SyncEvery, a power cut may lose the messages concerned
	// although their Puts returned nil; without it those Puts returned the error.
	SyncErrors uint64
}

// Open opens the queue in folder, and makes the folder if needed. It reads all waiting messages
// once. The error is of Kind Invalid for wrong options and for a folder in use by another Queue, of
// Kind Unsupported on a system without file locks, and otherwise the file system's.
func Open(folder string, o *Options) (*Queue, error) { return openOn(osFS{}, folder, o) }

func openOn(fs fileSystem, folder string, o *Options) (*Queue, error) {
	opt, err := o.resolve()
	if err != nil {
		return nil, err
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

// entrant is a record on its way to the disk.
type entrant struct {
	record  []byte
	segment *segment // the segment that has it
	number  uint64
	gaveUp  bool       // Put has returned
	result  chan error // capacity 1
}

// Put stores m in the files. Nil means that m is as safe as Options.SyncEvery says. The caller may
// reuse m when Put has returned.
//
// When the files are full, Options.Overflow applies; Block waits until ctx ends (Cancelled). Put
// also waits for a disk that does not answer until ctx ends (Cancelled, with
// transport.ErrOutcomeUnknown in the chain if the write had begun). A full disk returns Quota at
// once. Put takes messages again when there is space; files whose messages are done are deleted
// first.
//
// Other errors mean that m was not accepted: Invalid, TooLarge, Closed, Dropped, or the file
// system's. The exception is a failed fsync: it is unknown what the disk has, and m may still be
// sent.
func (q *Queue) Put(ctx context.Context, m *transport.Message) error {
	if m == nil {
		return invalid("the message is nil")
	}
	if err := m.Validate(); err != nil {
		return err
	}
	p, _ := q.entrants.Get().(*entrant)
	if p == nil {
		p = &entrant{result: make(chan error, 1)}
	}
	p.record = q.appendRecord(p.record[:0], m)
	if n := len(p.record) - recordHead; n > maxMessage {
		q.entrants.Put(p)
		return operr.TooLarge(n, maxMessage)
	}
	reusable, err := q.put(ctx, p)
	if reusable {
		p.segment = nil
		q.entrants.Put(p)
	}
	return err
}

// appendRecord appends a record with m. A message without an id gets one, unless that would make it
// too large for the hub.
func (q *Queue) appendRecord(b []byte, m *transport.Message) []byte {
	if m.ID != "" || !q.ids.On() || !messageid.Fits(m, m.Size()) {
		return appendRecord(b, m)
	}
	own := *m
	q.idsMu.Lock()
	own.ID = q.ids.Next()
	q.idsMu.Unlock()
	return appendRecord(b, &own)
}

// put reports whether p may be reused.
func (q *Queue) put(ctx context.Context, p *entrant) (reusable bool, err error) {
	for {
		if ctx.Err() != nil {
			return true, gaveUp(ctx, nil)
		}
		room, err := q.submit(p)
		if err != nil {
			return true, err
		}
		if room == nil {
			break
		}
		select {
		case <-room:
		case <-ctx.Done():
			return true, gaveUp(ctx, errFull.Err)
		}
	}
	select {
	case err := <-p.result:
		return true, err
	case <-ctx.Done():
	}
	return q.takeBack(ctx, p)
}

// takeBack withdraws p, unless the writer has it. ctx is Put's context, which has ended.
func (q *Queue) takeBack(ctx context.Context, p *entrant) (reusable bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.pending, p); i >= 0 {
		q.pending = slices.Delete(q.pending, i, i+1)
		q.pendingBytes -= int64(len(p.record))
		wake(&q.room)
		return true, gaveUp(ctx, errSlow)
	}
	select {
	case err := <-p.result:
		return true, err
	default:
	}
	p.gaveUp = true
	if !slices.Contains(q.busy, p) {
		p.record = nil // it is in the file, and a stalled fsync may hold many
	}
	return false, gaveUp(ctx, transport.ErrOutcomeUnknown)
}

// submit hands p to the writer. If there is no room, room is the channel to wait on.
func (q *Queue) submit(p *entrant) (room <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := int64(len(p.record))
	switch {
	case q.closed:
		return nil, errClosed
	case q.makeRoomLocked(size):
		q.pending = append(q.pending, p)
		q.pendingBytes += size
		q.kickLocked()
		return nil, nil
	case q.opt.Overflow == device.Block || q.opt.Overflow == device.DropOldest && q.pendingBytes > 0:
		return waitFor(&q.room), nil
	}
	return nil, errFull
}

// settleLocked delivers the result of p.
func (q *Queue) settleLocked(p *entrant, err error) {
	if err == nil && !p.gaveUp {
		q.stats.Put++
	}
	p.result <- err
}

// makeRoomLocked reports whether size more bytes fit, after making room as Overflow allows.
func (q *Queue) makeRoomLocked(size int64) bool {
	for q.bytes+q.pendingBytes+size > q.opt.MaxBytes {
		if len(q.segments) == 0 || q.inUseLocked() {
			return false
		}
		switch s := q.segments[0]; {
		case s.next <= q.done: // the active one, and all its messages are done
		case q.opt.Overflow == device.DropOldest:
			q.stats.Dropped += s.next - max(q.done, s.first) - q.holesIn(max(q.done, s.first), s.next)
			q.done = s.next
			wake(&q.ended)
		default:
			return false
		}
		q.removeFirstLocked()
	}
	return true
}

// inUseLocked reports whether the oldest segment cannot be removed because the writer uses it.
func (q *Queue) inUseLocked() bool {
	return len(q.busy) > 0 && len(q.segments) > 0 && q.segments[0] == q.active
}

// removeFirstLocked schedules the oldest segment for deletion.
func (q *Queue) removeFirstLocked() {
	s := q.segments[0]
	q.segments = slices.Delete(q.segments, 0, 1)
	q.bytes -= s.size
	if s == q.active {
		q.active = nil
	}
	q.trash = append(q.trash, s)
	q.settleUnsyncedLocked(s, s.next, nil) // done messages need no fsync
	wake(&q.room)
	wake(&q.grown) // Run may have the file open, which keeps its space, and on Windows its name
	q.kickLocked()
}

// finish records the result of a record. All records before it are done too; those from from to
// number-1 were not found. quiet means that no further result follows at once.
func (q *Queue) finish(from, number uint64, result error, quiet bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	missing := span{from, number}
	switch result {
	case nil:
		q.stats.Acknowledged++
	case errDamaged:
		missing.to++
	default:
		q.stats.Failed++
	}
	if missing.from = max(missing.from, q.done); missing.from < missing.to {
		q.stats.Damaged += missing.to - missing.from - q.holesIn(missing.from, missing.to)
	}
	q.passLocked(number + 1)
	const markEvery = 64
	if quiet || q.done-q.marked >= markEvery {
		q.markDue = true
		q.kickLocked()
	}
}

// passLocked records that all records below number are done.
func (q *Queue) passLocked(number uint64) {
	q.done = max(q.done, number)
	for len(q.segments) > 0 && q.segments[0] != q.active && q.segments[0].next <= q.done {
		q.removeFirstLocked()
	}
	wake(&q.ended)
	wake(&q.room) // the active segment may be done
}

// Stats returns the counts.
func (q *Queue) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Waiting, s.Bytes = q.next-q.done-q.holesIn(q.done, q.next), q.bytes
	return s
}

// Flush waits until all messages put before the call are done; Run must be running. It returns
// Cancelled when ctx ends first, and Closed when the queue is closed.
func (q *Queue) Flush(ctx context.Context) error {
	q.mu.Lock()
	upTo := q.next
	for q.done < upTo && !q.closed {
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
	if q.done < upTo {
		return errClosed
	}
	return nil
}

// Close ends Run, Flush and waiting Puts, and closes the files; waiting messages stay in them. It
// returns the error of the last fsync. If Run or the disk does not end within Options.CloseTimeout,
// it returns Timeout, and the folder stays locked until they have ended; another Close waits again.
func (q *Queue) Close() error {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		q.end(errClosed)
		for _, p := range q.pending {
			p.result <- errClosed
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
