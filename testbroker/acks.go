package testbroker

import (
	"sync"
	"time"
)

// An ack is an acknowledgement that waits.
type ack struct {
	due  time.Time
	send func()
}

// An ackQueue holds acknowledgements back. They are sent in order.
type ackQueue struct {
	mu      sync.Mutex
	acks    []ack
	running bool // a goroutine takes care of them
}

// add has an acknowledgement sent when it is due, the zero time meaning at once, but never before
// an earlier one. False means that the caller can send it itself. Only the connection's goroutine
// calls it.
func (q *ackQueue) add(c *conn, due time.Time, send func()) bool {
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
		c.hub.wg.Go(func() { q.run(c) })
	}
	return true
}

// waiting returns how many are held back.
func (q *ackQueue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.acks)
}

// run is a goroutine that exists while acknowledgements are held back. It ends when there are none,
// or with the connection; the hub's Close waits for it.
func (q *ackQueue) run(c *conn) {
	for {
		q.mu.Lock()
		if len(q.acks) == 0 {
			q.running = false
			q.mu.Unlock()
			return
		}
		head := q.acks[0]
		q.mu.Unlock()
		if !c.sleep(time.Until(head.due)) {
			return
		}
		head.send()
		q.mu.Lock()
		q.acks = q.acks[1:]
		q.mu.Unlock()
	}
}

// acknowledge sends a PUBACK when it is due. See ackQueue.add.
func (c *conn) acknowledge(id uint16, due time.Time) {
	if !c.acks.add(c, due, func() { c.puback(id) }) {
		c.puback(id)
	}
}

// puback writes the packet, past the broker, which would keep books about it.
func (c *conn) puback(id uint16) {
	if c.mode.Load() != open {
		return
	}
	send := func(id uint16) error {
		_, err := c.Write([]byte{packetPuback << 4, 2, byte(id >> 8), byte(id)})
		return err
	}
	if in := c.hub.faults.take(StrayPuback, c.id); in != nil {
		c.hub.happened(in, c)
		send(stray(id))
	}
	if in := c.hub.faults.take(DuplicatePuback, c.id); in != nil {
		c.hub.happened(in, c)
		send(id)
	}
	drop := c.hub.faults.take(DropAfterPuback, c.id) // before a client that has the PUBACK can declare one
	switch err := send(id); {
	case drop == nil:
	case err != nil || c.mode.Load() != open:
		c.hub.faults.release(drop)
	default:
		c.hub.happened(drop, c)
		c.farewell(faultError(DropAfterPuback))
	}
}

// stray returns another packet id, one that a client that counts is not about to use.
func stray(id uint16) uint16 {
	if id == 1<<15 {
		return 1
	}
	return id ^ 1<<15
}

// sleep waits; false when the connection ended meanwhile.
func (c *conn) sleep(d time.Duration) bool {
	if d <= 0 {
		return c.mode.Load() != over
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.closed:
		return false
	}
}
