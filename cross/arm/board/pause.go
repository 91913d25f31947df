package board

import (
	"context"
	"time"
)

// pause is a context that ends on request; context.WithTimeout costs 20 KB of flash. Each end ends
// one wait.
type pause struct{ ended chan struct{} }

func newPause() *pause { return &pause{ended: make(chan struct{}, 1)} }

// end ends the current wait, or the next one.
func (p *pause) end() {
	select {
	case p.ended <- struct{}{}:
	default:
	}
}

// endAfter calls end later, unless stopped. On boards that costs the stack of a short-lived
// goroutine, so do not use it in every iteration of a loop.
func (p *pause) endAfter(d time.Duration) (stop func()) {
	p.drain()
	timer := time.AfterFunc(d, p.end)
	return func() {
		timer.Stop()
		p.drain()
	}
}

// drain discards an end that ended no wait.
func (p *pause) drain() {
	select {
	case <-p.ended:
	default:
	}
}

func (p *pause) Deadline() (time.Time, bool) { return time.Time{}, false }
func (p *pause) Done() <-chan struct{}       { return p.ended }
func (p *pause) Err() error                  { return context.DeadlineExceeded }
func (p *pause) Value(any) any               { return nil }
