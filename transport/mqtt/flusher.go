package mqtt

import (
	"errors"
	"os"
	"time"
)

// flush is the flusher: the only goroutine that writes to the socket while flushing is set. It ends
// when no write is due. It ends for good when the connection failed, or was closed and all is
// written.
func (c *conn) flush() {
	for {
		c.mu.Lock()
		var out *writeBuf
		failed, closing, spaceFreed := c.err != nil, c.closing, c.spaceFreed
		if closing || c.writeDueLocked() {
			out, c.pending = c.pending, nil
		}
		if out == nil && !failed && !closing {
			c.flusherIdleLocked()
		}
		keepRunning := c.flushing
		c.mu.Unlock()
		switch {
		case failed:
			close(c.flushed)
			return
		case out != nil:
			notify(spaceFreed)
			if err := c.send(out.b); err != nil {
				c.awaitReason()
				c.fail(&writeError{err})
			} else {
				c.report(out)
			}
			out.free()
		case closing:
			c.closeGracefully()
		case !keepRunning:
			return
		default:
			select {
			case <-c.wake:
			case <-c.control:
				if err := c.send(nil); err != nil {
					c.fail(&writeError{err})
				}
			}
		}
	}
}

// awaitReason gives the reading goroutine reasonTime to find out why the hub closed on CONNECT.
// With TLS 1.3 a client certificate is refused after the handshake, and the write may fail before
// the alert was read.
func (c *conn) awaitReason() {
	select {
	case <-c.open:
		return
	default:
	}
	t := time.NewTimer(reasonTime)
	defer t.Stop()
	select {
	case <-c.dead:
	case <-t.C:
	}
}

// send writes p in chunks. The socket, a dialer.ProgressConn, ends a write that makes no progress.
// An empty p lets a tunnel write its pending replies.
func (c *conn) send(p []byte) error {
	for first := true; first || len(p) > 0; first = false {
		n := min(len(p), writeChunk)
		c.mu.Lock()
		c.beat.lastWrite = time.Now()
		c.mu.Unlock()
		if _, err := c.Conn.Write(p[:n]); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// report reports the messages with QoS 0 in out, which was written.
func (c *conn) report(out *writeBuf) {
	for _, tag := range out.atMostOnce {
		c.sent(tag)
	}
}

// closeGracefully closes after DISCONNECT. It bounds the close_notify of TLS, for which crypto/tls
// would wait 5 s.
func (c *conn) closeGracefully() {
	if c.Conn != c.socket {
		c.mu.Lock()
		rest := time.Until(c.drainDeadline)
		c.mu.Unlock()
		t := time.AfterFunc(rest, func() { _ = c.socket.Close() })
		_ = c.Conn.Close()
		t.Stop()
	}
	c.fail(errClosed)
}

// writeDueLocked reports whether to write the pending bytes: there are flushSize of them, or no
// more messages are announced.
func (c *conn) writeDueLocked() bool {
	return c.pending != nil && (c.announced <= 0 || len(c.pending.b) >= flushSize)
}

// flusherIdleLocked marks the flusher idle.
func (c *conn) flusherIdleLocked() {
	c.flushing = c.control != nil
	if c.pending == nil && c.beat.pinged {
		c.beat.flushed(time.Now())
	}
}

// wakeFlusherLocked wakes the flusher, or starts it.
func (c *conn) wakeFlusherLocked() {
	if c.flushing {
		notify(c.wake)
		return
	}
	c.flushing = true
	go c.flush()
}

// becomeFlusherLocked makes the caller the flusher and returns the pending bytes.
func (c *conn) becomeFlusherLocked() *writeBuf {
	out := c.pending
	c.flushing, c.pending = true, nil
	return out
}

// writeThrough writes out as the flusher. If more bytes were appended meanwhile, it starts a
// flusher goroutine for them.
func (c *conn) writeThrough(out *writeBuf) error {
	err := c.send(out.b)
	if err != nil {
		err = c.fail(&writeError{err})
	} else {
		c.report(out)
	}
	out.free()
	c.mu.Lock()
	if c.writeDueLocked() || c.closing || c.err != nil {
		go c.flush()
	} else {
		c.flusherIdleLocked()
	}
	c.mu.Unlock()
	return err
}

// A writeError is a failure of the flusher.
type writeError struct{ err error }

func (e *writeError) Error() string {
	if errors.Is(e.err, os.ErrDeadlineExceeded) {
		return "the hub accepts no data: " + e.err.Error()
	}
	return e.err.Error()
}

func (e *writeError) Unwrap() error { return e.err }
