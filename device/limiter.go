package device

import (
	"sync"
	"time"
)

// DialLimiter keeps the clients of one process from dialing all at once, after an outage of the network for one. Give the same limiter to each client's
// Options.Dials. It is safe for concurrent use.
type DialLimiter struct {
	places chan struct{}
	gap    time.Duration

	mu   sync.Mutex
	next time.Time // no attempt begins earlier
}

// NewDialLimiter returns a limiter that lets at most attempts run at a time (1 or more), and begin at least gap after one another (0: no gap).
func NewDialLimiter(attempts int, gap time.Duration) *DialLimiter {
	return &DialLimiter{places: make(chan struct{}, max(1, attempts)), gap: max(0, gap)}
}

// turn says when the holder of a place may begin, and books that time.
func (l *DialLimiter) turn(now time.Time) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := now
	if l.next.After(now) {
		at = l.next
	}
	l.next = at.Add(l.gap)
	return at
}
