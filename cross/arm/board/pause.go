package board

import (
	"context"
	"time"
)

// pause is a context that ends when it is told to: context.WithTimeout costs 20 KB of flash. It
// ends one wait for each end.
type pause struct{ ended chan struct{} }

func newPause() *pause { return &pause{ended: make(chan struct{}, 1)} }

// end ends the wait that is under way, or the next one.
func (p *pause) end() {
	select {
	case p.ended <- struct{}{}:
	default:
	}
}

// endAfter calls end later, unless stopped. On boards that costs a stack for a goroutine that lives
// for a moment: not for every turn of a loop.
func (p *pause) endAfter(d time.Duration) (stop func()) {
	p.drain()
	timer := time.AfterFunc(d, p.end)
	return func() {
		timer.Stop()
		p.drain()
	}
}

// drain forgets an end that ended nothing.
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
