package outbox

import (
	"context"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/messageid"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// entrant is a record on its way to the disk.
type entrant struct {
	record  []byte
	segment *segment // the segment that has it
	number  uint64
	gaveUp  bool       // Put has returned
	settled bool       // the result is decided
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
		return operr.TooLarge(n, len(m.Body), maxMessage)
	}
	reusable, err := q.put(ctx, p)
	if reusable {
		p.segment, p.settled = nil, false
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
	if p.settled {
		return true, <-p.result
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
		if len(q.pending) >= q.expected {
			wake(&q.complete)
		}
		q.kickLocked()
		return nil, nil
	case q.opt.Overflow == device.OverflowBlock || q.opt.Overflow == device.OverflowDropOldest && q.pendingBytes > 0:
		return waitFor(&q.room), nil
	}
	return nil, errFull
}

// settleLocked delivers the result of p.
func (q *Queue) settleLocked(p *entrant, err error) {
	q.countLocked(p, err)
	p.result <- err
}

// countLocked decides the result of p, which the caller delivers.
func (q *Queue) countLocked(p *entrant, err error) {
	p.settled = true
	if err == nil && !p.gaveUp {
		q.stats.Put++
	}
}

// makeRoomLocked reports whether size more bytes fit, after making room as Overflow allows.
func (q *Queue) makeRoomLocked(size int64) bool {
	for q.bytes+q.pendingBytes+size > q.opt.MaxBytes {
		if len(q.segments) == 0 || q.inUseLocked() {
			return false
		}
		switch s := q.segments[0]; {
		case s.next <= q.done: // the active one, and all its messages are done
		case q.opt.Overflow == device.OverflowDropOldest:
			from := max(q.done, s.first)
			n := s.next - from - q.holesIn(from, s.next)
			q.stats.Dropped += n
			q.silentLocked(n, errDropped)
			q.done, q.front = s.next, time.Now()
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
