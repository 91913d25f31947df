package device

import (
	"sync"
	"time"
)

// DialLimiter keeps the clients of one process from dialing all at once, after an outage of the
// network for one. Give the same limiter to each client's Options.Dials. It is safe for concurrent
// use.
type DialLimiter struct {
	places chan struct{}
	// turn says when the holder of a place may begin, and books that time. A function, so that
	// a program without a limiter links none.
	turn func(now time.Time) time.Time
}

// NewDialLimiter returns a limiter that lets at most attempts run at a time (1 or more), and begin
// at least gap after one another (0: no gap).
func NewDialLimiter(attempts int, gap time.Duration) *DialLimiter {
	var mu sync.Mutex
	var next time.Time // no attempt begins earlier
	return &DialLimiter{
		places: make(chan struct{}, max(1, attempts)),
		turn: func(now time.Time) time.Time {
			mu.Lock()
			defer mu.Unlock()
			at := now
			if next.After(now) {
				at = next
			}
			next = at.Add(max(0, gap))
			return at
		},
	}
}
