package device

import (
	"sync"
	"time"
)

// DialLimiter limits the attempts to connect of all clients in a process, for example after a
// network outage. Set the same limiter in each client's Options.Dials. It is safe for concurrent
// use.
type DialLimiter struct {
	slots chan struct{}
	// turn reserves and returns the time at which the holder of a slot may begin. It is a function
	// value, so a program without a limiter links none of it.
	turn func(now time.Time) time.Time
}

// NewDialLimiter returns a limiter for at most attempts concurrent attempts (1 or more), which
// begin at least gap apart (0: no gap).
func NewDialLimiter(attempts int, gap time.Duration) *DialLimiter {
	var mu sync.Mutex
	var next time.Time // no attempt begins earlier
	return &DialLimiter{
		slots: make(chan struct{}, max(1, attempts)),
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
