package hub

import (
	"sync"
	"time"
)

// An ack is an acknowledgement that is held back.
type ack struct {
	due  time.Time
	send func()
}

// An AckQueue delays acknowledgements. It sends them in order.
type AckQueue struct {
	mu      sync.Mutex
	acks    []ack
	running bool // a goroutine serves the queue
}

// Add sends an acknowledgement at due (zero: at once), but never before an earlier one. False means
// that the queue is empty and the caller can send it itself. Only the connection's goroutine calls
// Add.
func (q *AckQueue) Add(c *Conn, due time.Time, send func()) bool {
	q.mu.Lock()
	if due.IsZero() && !q.running {
		q.mu.Unlock()
		return false
	}
	q.acks = append(q.acks, ack{due, send})
	start := !q.running
	q.running = true
	q.mu.Unlock()
	if start {
		c.Hub.Wg.Go(func() { q.run(c) })
	}
	return true
}

// Idle reports whether nothing is held back. Only the connection's goroutine calls it.
func (q *AckQueue) Idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.running
}

// Waiting returns how many acknowledgements are held back.
func (q *AckQueue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.acks)
}

// run is a goroutine that exists while acknowledgements are held back. It ends when the queue is
// empty or the connection ends. The hub's Close waits for it.
func (q *AckQueue) run(c *Conn) {
	for {
		q.mu.Lock()
		if len(q.acks) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		head := q.acks[0]
		q.mu.Unlock()
		if !c.Sleep(time.Until(head.due)) {
			return
		}
		head.send()
		q.mu.Lock()
		q.acks = q.acks[1:]
		q.mu.Unlock()
	}
}
