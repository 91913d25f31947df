package amqpclient

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/dialer"
)

const (
	// HighWater is how many bytes may be pending, unless it is a single message, before telemetry
	// must wait.
	HighWater = 256 << 10
	// writeChunk is the most bytes in one write over a tunnel or TLS, unless the link is fast. A
	// tunnel makes one frame of it.
	writeChunk = 16 << 10
	// fullBuffer is the least duration of a write that had to wait for room in the send buffer.
	fullBuffer = 50 * time.Millisecond
	// maxUnread is how many bytes may be pending before reading stops. It bounds memory for a peer
	// that causes many answers and reads none.
	maxUnread = 1 << 20
)

// output is what is to be written. One goroutine at a time writes: writing is true meanwhile.
type output struct {
	pending []byte
	writing bool
	leaving int           // bytes that are being written
	replies bool          // the tunnel has replies to write
	tasks   []func()      // run by the writing goroutine before it writes
	stalled []*func()     // become tasks when pending is written; each is listed once
	room    chan struct{} // closed when pending is written; nil: no waiters
}

// grow makes room for n more bytes.
func (o *output) grow(n int) { o.pending = room(o.pending, n) }

// writeLocked appends a frame. The frames of this side are small and their texts were checked; one
// that cannot be encoded ends the connection. mu is held.
func (c *Conn) writeLocked(channel uint16, p wire.Performative) {
	if c.err != nil || c.closing {
		return
	}
	c.out.grow(256)
	b, err := wire.AppendFrame(c.out.pending, channel, p, nil)
	if err != nil {
		time.AfterFunc(0, func() { c.Fail(err) })
		return
	}
	c.out.pending = b
}

// Soon calls f on a goroutine that may write, and writes what f appends.
func (c *Conn) Soon(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.soonLocked(f)
}

func (c *Conn) soonLocked(f func()) {
	if c.err != nil {
		return
	}
	c.out.tasks = append(c.out.tasks, f)
	c.kickLocked()
}

// Full reports whether so much is pending that a message of n bytes must wait. If so, it calls *f,
// as Soon does, when there is room: once, however often that message is tried meanwhile.
func (c *Conn) Full(n int, f *func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out.pending) == 0 || len(c.out.pending)+n <= HighWater || c.err != nil {
		return false
	}
	if !slices.Contains(c.out.stalled, f) {
		c.out.stalled = append(c.out.stalled, f)
	}
	return true
}

// Pending returns how many bytes are pending or being written.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out.pending) + c.out.leaving
}

// Kick lets another goroutine write what is pending.
func (c *Conn) Kick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.out.pending) > 0 {
		c.kickLocked()
	}
}

// kickLocked lets another goroutine write what is pending. mu is held.
func (c *Conn) kickLocked() {
	if c.out.writing || c.err != nil {
		return
	}
	c.out.writing = true
	c.background.Go(c.write) // the reading goroutine has not ended
}

// Flush writes what is pending, unless a goroutine is writing, which then writes it. It may block
// as long as the socket does.
func (c *Conn) Flush() {
	c.mu.Lock()
	if c.out.writing || c.err != nil || len(c.out.pending) == 0 {
		c.mu.Unlock()
		return
	}
	c.out.writing = true
	b := c.takeLocked()
	c.mu.Unlock()
	c.sendOrFail(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.writing, c.out.leaving = false, 0
	if len(c.out.pending) > 0 || len(c.out.tasks) > 0 || c.out.replies || c.closing {
		c.kickLocked()
	}
}

// takeLocked takes the pending bytes. mu is held.
func (c *Conn) takeLocked() []byte {
	b := c.out.pending
	c.out.pending, c.out.leaving = nil, len(b)
	if c.out.room != nil {
		close(c.out.room)
		c.out.room = nil
	}
	for _, f := range c.out.stalled {
		c.out.tasks = append(c.out.tasks, *f)
	}
	c.out.stalled = nil
	return b
}

// write is the goroutine that writes until nothing is pending.
func (c *Conn) write() {
	for {
		c.mu.Lock()
		tasks := c.out.tasks
		c.out.tasks = nil
		c.mu.Unlock()
		for _, f := range tasks {
			f()
		}
		c.mu.Lock()
		b, replies := c.takeLocked(), c.out.replies
		c.out.replies = false
		if c.err != nil || len(b) == 0 && !replies && len(c.out.tasks) == 0 {
			bye := c.closing && c.err == nil
			c.out.writing = bye // nobody writes beside hangUp
			c.mu.Unlock()
			if bye {
				c.hangUp()
			}
			return
		}
		c.mu.Unlock()
		if len(b) > 0 || replies {
			c.sendOrFail(b)
		}
	}
}

// reasonTime is how long a connection waits for the peer's reason when a write failed.
const reasonTime = 250 * time.Millisecond

// sendOrFail sends b and returns it to its pool. After a failure, unless the peer just takes no
// data, the connection stays open for reasonTime: the peer may have sent why it closed it.
func (c *Conn) sendOrFail(b []byte) {
	defer release(b)
	c.mu.Lock()
	over := c.unsent != nil
	c.mu.Unlock()
	if over {
		return
	}
	err := c.send(b)
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.Fail(err)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil {
			c.unsent = err
			c.ending = time.AfterFunc(reasonTime, func() { c.Fail(err) })
		}
	}
}

// send writes p. The socket, a dialer.ProgressConn, fails a write without progress. An empty p
// makes the tunnel write its replies.
func (c *Conn) send(p []byte) error {
	chunk := writeChunk
	switch {
	case c.outer == c.socket:
		chunk = largeBuffer
	case dialer.Fast(c.outer, c.socket):
		chunk = dialer.FastWrite
	}
	for first := true; first || len(p) > 0; first = false {
		n := min(len(p), chunk)
		began := time.Now()
		if _, err := dialer.Write(c.outer, c.socket, p[:n]); err != nil {
			return &WriteError{err}
		}
		if time.Since(began) > fullBuffer {
			c.unjammed.now() // only a living peer makes room
		}
		p = p[n:]
	}
	return nil
}

// writeReplies lets the tunnel write its replies.
func (c *Conn) writeReplies() {
	for {
		select {
		case <-c.owed:
			c.mu.Lock()
			c.out.replies = true
			c.kickLocked()
			c.mu.Unlock()
		case <-c.done:
			return
		}
	}
}

// waitRead waits until less than maxUnread bytes are pending.
func (c *Conn) waitRead() error {
	for {
		c.mu.Lock()
		err := c.err
		full := len(c.out.pending) >= maxUnread && err == nil
		if full && c.out.room == nil {
			c.out.room = make(chan struct{})
		}
		room := c.out.room
		c.mu.Unlock()
		if !full {
			return err
		}
		select {
		case <-room:
		case <-c.done:
		}
	}
}

// WriteError is a failure to write: the network took no data.
type WriteError struct{ Err error }

func (e *WriteError) Error() string {
	if errors.Is(e.Err, os.ErrDeadlineExceeded) {
		return "the hub accepts no data: " + e.Err.Error()
	}
	return e.Err.Error()
}

func (e *WriteError) Unwrap() error { return e.Err }

// waitFor waits until opened is closed, or returns why it will not be.
func (c *Conn) waitFor(ctx context.Context, opened <-chan struct{}) error {
	select {
	case <-opened:
		return nil
	case <-c.done:
		return c.Loss()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
