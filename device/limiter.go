package device

import (
	"context"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
)

// DialLimiter limits the attempts to connect of all clients in a process, for example after a
// network outage. Set the same limiter in each client's Options.Dials. It is safe for concurrent
// use.
type DialLimiter struct {
	slots chan struct{}
	first chan struct{} // held by the holder of a slot whose turn is next: the others wait for it, about in order
	// turn takes a turn for the holder of first if one is free, and returns now. Otherwise it returns
	// when to ask again: a holder that gives up before has taken nothing. It is a function value, so a
	// program without a limiter links none of it.
	turn func(now time.Time) time.Time
	// pause is dialSlot.wait, for the same reason.
	pause func(s *dialSlot, ctx context.Context, d time.Duration) error
}

// NewDialLimiter returns a limiter for at most attempts concurrent attempts (1 or more), which
// begin at least gap apart (0: no gap).
func NewDialLimiter(attempts int, gap time.Duration) *DialLimiter {
	var mu sync.Mutex
	turns := reconnect.Turns{Gap: gap}
	return &DialLimiter{
		slots: make(chan struct{}, max(1, attempts)),
		first: make(chan struct{}, 1),
		turn: func(now time.Time) time.Time {
			mu.Lock()
			defer mu.Unlock()
			if at := turns.Next(now); at.After(now) {
				return at
			}
			return turns.Take(now)
		},
		pause: func(s *dialSlot, ctx context.Context, d time.Duration) error {
			s.release()
			if err := sleep(ctx, d); err != nil {
				return err
			}
			select {
			case s.of.slots <- struct{}{}:
				s.held = true
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case s.of.first <- struct{}{}:
				defer func() { <-s.of.first }()
			case <-ctx.Done():
				return ctx.Err()
			}
			for {
				now := time.Now()
				at := s.of.turn(now)
				if !at.After(now) {
					return nil
				}
				if err := sleep(ctx, at.Sub(now)); err != nil {
					return err
				}
			}
		},
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

// dialSlot is the slot of an attempt. The goroutine of the attempt owns it.
type dialSlot struct {
	of   *DialLimiter // nil: attempts are not limited
	held bool
}

// wait waits without the slot. It is transport.Config.Wait.
func (s *dialSlot) wait(ctx context.Context, d time.Duration) error { return s.of.pause(s, ctx, d) }

func (s *dialSlot) release() {
	if s.held {
		s.held = false
		<-s.of.slots
	}
}
