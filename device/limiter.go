package device

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
)

// DialLimiter limits the attempts to connect of all clients in a process, for example after a
// network outage. Clients begin in the order in which they came. Set the same limiter in each
// client's Options.Dials. It is safe for concurrent use.
type DialLimiter struct {
	// enter waits for the loop's slot, and returns false when the loop must end. leave gives a slot
	// or a place in the queue back. pause is dialSlot.wait. They are function values, so a program
	// without a limiter links none of it.
	enter func(l *loop) bool
	leave func(s *dialSlot)
	pause func(s *dialSlot, ctx context.Context, d time.Duration) error
}

// NewDialLimiter returns a limiter for at most attempts concurrent attempts (1 or more), which
// begin at least gap apart (0: no gap).
func NewDialLimiter(attempts int, gap time.Duration) *DialLimiter {
	d := &dials{free: max(1, attempts), turns: reconnect.Turns{Gap: gap}}
	return &DialLimiter{enter: d.enter, leave: d.leave, pause: d.pause}
}

// dials is the state of a DialLimiter.
type dials struct {
	mu    sync.Mutex
	free  int // slots
	turns reconnect.Turns
	queue []*dialSlot
	timer *time.Timer // calls next at the next turn; nil until needed
}

// join puts s into the queue. The channel that it returns is closed when s has its slot.
func (d *dials) join(s *dialSlot) <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.turn = make(chan struct{})
	d.queue = append(d.queue, s)
	d.nextLocked()
	return s.turn
}

func (d *dials) leave(s *dialSlot) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(d.queue, s); i >= 0 {
		d.queue = slices.Delete(d.queue, i, i+1)
	} else if s.turn != nil {
		d.free++
	}
	s.turn = nil
	d.nextLocked()
}

// nextLocked gives free slots to the first in the queue, each at its turn.
func (d *dials) nextLocked() {
	for d.free > 0 && len(d.queue) > 0 {
		now := time.Now()
		if at := d.turns.Next(now); at.After(now) {
			if d.timer == nil {
				d.timer = time.AfterFunc(at.Sub(now), d.next)
			} else {
				d.timer.Reset(at.Sub(now))
			}
			return
		}
		d.turns.Take(now)
		d.free--
		close(d.queue[0].turn)
		d.queue = slices.Delete(d.queue, 0, 1)
	}
}

func (d *dials) next() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nextLocked()
}

func (d *dials) enter(l *loop) bool {
	turn := d.join(&l.worker.slot)
	for {
		now := time.Now()
		l.timer.arm(now, l.expire(now))
		select {
		case <-turn:
			return true
		case <-l.c.wake:
		case <-l.ctx.Done():
			d.leave(&l.worker.slot)
			return false
		}
	}
}

func (d *dials) pause(s *dialSlot, ctx context.Context, wait time.Duration) error {
	d.leave(s)
	if err := sleep(ctx, wait); err != nil {
		return err
	}
	select {
	case <-d.join(s):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// dialSlot is the slot of an attempt: of the loop, and then of the attempt's goroutine.
type dialSlot struct {
	of   *DialLimiter  // nil: attempts are not limited
	turn chan struct{} // nil: neither in the queue nor with a slot. The limiter guards it.
}

// wait waits without the slot. It is transport.Config.Wait.
func (s *dialSlot) wait(ctx context.Context, d time.Duration) error { return s.of.pause(s, ctx, d) }

func (s *dialSlot) release() {
	if s.of != nil {
		s.of.leave(s)
	}
}
