package memconn

import (
	"io"
	"net"
	"time"
)

// Addr is the address of an end: a host and a port that exist only in memory.
type Addr string

// Network returns "mem".
func (Addr) Network() string { return "mem" }

// String returns the address as text.
func (a Addr) String() string { return string(a) }

// Conn is one end of a connection: a [net.Conn] with additional methods for tests.
type Conn struct {
	in, out       *half
	local, remote Addr
}

var _ net.Conn = (*Conn)(nil)

// Pair returns the two ends of a new connection. The addresses are as seen by the first end, and
// swapped for the second. Each direction buffers [DefaultBuffer] bytes.
func Pair(localAddr, remoteAddr string) (a, b *Conn) {
	ab, ba := newHalf(), newHalf()
	a = &Conn{in: ba, out: ab, local: Addr(localAddr), remote: Addr(remoteAddr)}
	b = &Conn{in: ab, out: ba, local: a.remote, remote: a.local}
	return a, b
}

// Read waits for bytes and returns those that have arrived. It returns [io.EOF] after the last byte
// of a peer that closed.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.dress("read", err)
}

// Write queues a copy of p for the peer and waits only for room in the buffer. Concurrent Writes do
// not mix. If it fails midway, n bytes were queued.
func (c *Conn) Write(p []byte) (n int, err error) {
	n, err = c.out.write(p)
	return n, c.dress("write", err)
}

// Close ends both directions. The peer reads the data written before, then [io.EOF], and its writes
// fail with EPIPE. Blocked calls on this end return [net.ErrClosed] at once. A second Close does
// nothing.
func (c *Conn) Close() error {
	if c.out.closeWriter() {
		c.in.closeReader()
	}
	return nil
}

// CloseWrite ends the outgoing direction: the peer reads the data written before, then [io.EOF].
// Reading still works.
func (c *Conn) CloseWrite() error {
	c.out.end()
	return nil
}

// SetWriteBuffer does nothing. It exists because sockets have it; tests use [Conn.SetSendBuffer].
func (c *Conn) SetWriteBuffer(int) error { return nil }

// Reset breaks the connection as a RST does: bytes in flight are lost, and all calls on both ends
// fail with ECONNRESET until the end is closed. It works also while the link is held.
func (c *Conn) Reset() {
	c.out.reset()
	c.in.reset()
}

// Hold makes the link half-open in both directions, or releases it. While it is held, writes fill
// the buffer as usual but no byte arrives, and neither end sees a close by the other one. Buffered
// bytes are delivered after the release. A writer waits when its buffer is full: see
// [Conn.SetBuffer].
func (c *Conn) Hold(on bool) {
	c.out.setHeld(on)
	c.in.setHeld(on)
}

// SetBuffer sets how many bytes each direction buffers before its writer waits. Zero or less: a
// writer never waits. The default is [DefaultBuffer].
func (c *Conn) SetBuffer(n int) {
	c.out.setLimit(n)
	c.in.setLimit(n)
}

// SetSendBuffer sets how many outgoing bytes this end buffers before a writer waits, like the send
// buffer of a socket. See [Conn.SetBuffer].
func (c *Conn) SetSendBuffer(n int) { c.out.setLimit(n) }

// SetWindow gives this end a receive buffer apart from the peer's send buffer. When it is full, its
// window is closed, and opens only when step bytes are free, as a kernel avoids small windows. By
// default the window is closed while the buffer of [Conn.SetBuffer] is full.
func (c *Conn) SetWindow(buffer, step int) { c.in.setWindow(buffer, step) }

// SendQueue returns how many bytes of this end have not arrived at the other one, whether read
// there or not. While the peer's window is closed, it also returns when the peer last answered a
// probe of it: now, or when the link was held. A kernel reports the same for a socket.
func (c *Conn) SendQueue() (unsent int64, answered time.Time) { return c.out.sendQueue() }

// SetLatency sets a function that each write of either end calls for the delay of its bytes; nil
// means no delay. Bytes never overtake one another, and the end of the stream arrives after them. f
// is called on the writing goroutines, without a lock.
func (c *Conn) SetLatency(f func() time.Duration) {
	c.out.setLatency(f)
	c.in.setLatency(f)
}

// SetRate sets how many bytes per second each direction carries, for later writes. Zero or less
// means no limit. A writer waits only when the buffer is full: see [Conn.SetBuffer].
func (c *Conn) SetRate(bytes int) {
	c.out.setRate(bytes)
	c.in.setRate(bytes)
}

// LocalAddr returns the address of this end, an [Addr].
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other end, an [Addr].
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines. See [net.Conn].
func (c *Conn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}

// SetReadDeadline makes current and later Reads fail at t. The zero time means never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.dress("set", c.in.setReadDeadline(t))
}

// SetWriteDeadline makes current and later Writes fail at t. The zero time means never.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.dress("set", c.out.setWriteDeadline(t))
}

// dress wraps an error as package net does.
func (c *Conn) dress(op string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // a wrapped one is another error
		return err
	}
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}
