package memconn

import (
	"io"
	"net"
	"time"
)

// Addr is the address of an end: a host and a port that exist in memory only.
type Addr string

// Network returns "mem".
func (Addr) Network() string { return "mem" }

// String returns the address as text.
func (a Addr) String() string { return string(a) }

// Conn is one end of a connection. It is a [net.Conn] with a few abilities for tests.
type Conn struct {
	in, out       *half
	local, remote Addr
}

var _ net.Conn = (*Conn)(nil)

// Pair returns the two ends of a new connection. The addresses are those that the first end sees;
// for the second they are the other way round. Each direction holds [DefaultBuffer] bytes.
func Pair(localAddr, remoteAddr string) (a, b *Conn) {
	ab, ba := newHalf(), newHalf()
	a = &Conn{in: ba, out: ab, local: Addr(localAddr), remote: Addr(remoteAddr)}
	b = &Conn{in: ab, out: ba, local: a.remote, remote: a.local}
	return a, b
}

// Read waits for bytes and takes as many as have arrived. It returns [io.EOF] after the last byte
// of a peer that closed.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.dress("read", err)
}

// Write queues a copy of p for the peer and waits only for room in the buffer. Writes of several
// goroutines do not mix. When it fails midway, n bytes were queued.
func (c *Conn) Write(p []byte) (n int, err error) {
	n, err = c.out.write(p)
	return n, c.dress("write", err)
}

// Close ends both directions. The peer reads what was written before, then [io.EOF], and its writes
// fail with EPIPE. Own calls that wait return [net.ErrClosed] at once. A second Close does nothing.
func (c *Conn) Close() error {
	if c.out.closeWriter() {
		c.in.closeReader()
	}
	return nil
}

// CloseWrite ends the outgoing direction: the peer reads what was written before, then [io.EOF].
// Reading goes on.
func (c *Conn) CloseWrite() error {
	c.out.end()
	return nil
}

// SetWriteBuffer does nothing. It is there because sockets have it; a test sets the buffer by
// [Conn.SetSendBuffer].
func (c *Conn) SetWriteBuffer(int) error { return nil }

// Reset breaks the connection as a RST does: bytes on the way are lost, and both ends get
// ECONNRESET from every call until they close. It also reaches the ends of a link that is held.
func (c *Conn) Reset() {
	c.out.reset()
	c.in.reset()
}

// Hold makes the link half-open, in both directions, or lets it work again. While it is held, bytes
// are taken into the buffer as ever but arrive nowhere, and no end learns that the other one
// closed; what is in the buffers is delivered after the release. A writer waits when its buffer is
// full: see [Conn.SetBuffer].
func (c *Conn) Hold(on bool) {
	c.out.setHeld(on)
	c.in.setHeld(on)
}

// SetBuffer sets how many bytes each direction holds before its writer waits. Zero or less means
// that a writer never waits. The default is [DefaultBuffer].
func (c *Conn) SetBuffer(n int) {
	c.out.setLimit(n)
	c.in.setLimit(n)
}

// SetSendBuffer sets how many bytes the direction away from this end holds before a writer waits,
// as the send buffer of a socket does. See [Conn.SetBuffer].
func (c *Conn) SetSendBuffer(n int) { c.out.setLimit(n) }

// Unsent returns how many bytes of this end have not arrived at the other one, whether that reads
// them or not. A kernel tells the same of a socket.
func (c *Conn) Unsent() int64 { return c.out.unsent() }

// SetLatency has f asked, at each write of either end, how long those bytes will be on their way;
// nil means no time at all. Bytes never overtake one another, and the end of the stream arrives
// behind them. f is called from the writing goroutines, without a lock.
func (c *Conn) SetLatency(f func() time.Duration) {
	c.out.setLatency(f)
	c.in.setLatency(f)
}

// SetRate sets how many bytes per second each direction carries, for writes to come. Zero or less
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

// SetReadDeadline wakes a Read that waits, now or later, when t has come. The zero time means
// never.
func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.dress("set", c.in.setReadDeadline(t))
}

// SetWriteDeadline wakes a Write that waits, now or later, when t has come. The zero time means
// never.
func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.dress("set", c.out.setWriteDeadline(t))
}

// dress gives an error the shape in which package net would return it.
func (c *Conn) dress(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: c.local.Network(), Source: c.local, Addr: c.remote, Err: err}
}
