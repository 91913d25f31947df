// Package amqpclient is the client's side of AMQP 1.0: a connection with sessions and links, on a
// connection that dialer.Dialer made.
//
// Each frame of the peer is decoded and checked in place, and compared with what both sides sent
// before: a frame that breaks the protocol ends the connection with a *Violation. What the peer
// makes this side keep is bounded.
//
// A connection has one goroutine, which reads, and calls the functions in SenderOptions and
// ReceiverOptions; these must not block. What is sent is appended to a buffer. Flush writes it on
// the goroutine of the caller; else another goroutine does, which ends when there is nothing left.
package amqpclient

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/neterr"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are what a connection needs to know.
type Options struct {
	// Host is the hub's name, for its open and SASL.
	Host string
	// IdleTimeout is how long the peer may be silent. 0: a minute.
	IdleTimeout time.Duration
	// SASL are the beginnings of a SASL dialogue, the preferred mechanism first. Nil: no SASL.
	SASL []wire.Init
	// Respond returns the response to a challenge. Nil: the mechanisms have none.
	Respond func(challenge []byte) ([]byte, error)
}

// Conn is an open AMQP connection. Its goroutines end with Close.
type Conn struct {
	outer  net.Conn        // tunnel, TLS or the socket
	socket net.Conn        // the lowest layer
	owed   <-chan struct{} // signals that the tunnel has replies to write, such as a pong; nil: never
	idle   time.Duration
	done   chan struct{} // closed when the connection has ended
	in     input         // owned by the reading goroutine

	received instant // when the peer last sent something
	unjammed instant // when the network last took bytes after its buffers were full
	sessions atomic.Int32

	background sync.WaitGroup // the reading goroutine and its children

	mu      sync.Mutex  // guards the fields below; never held during I/O
	err     error       // why the connection ended
	unsent  error       // a failure to write, after which nothing is written
	ending  *time.Timer // ends the connection after it; nil: not yet
	closing bool        // Close was called
	drainBy time.Time   // set by Close
	out     output
	frame   int                 // the largest frame that the peer takes
	beat    *time.Timer         // writes an empty frame; nil: the peer needs none
	local   []*Session          // by this side's channel; nil: free
	remote  map[uint16]*Session // by the peer's channel
	freed   chan struct{}       // closed when a channel becomes free; nil: no waiters
	partial int                 // bytes of incomplete messages
	numbers uint32              // the number of the next session's first delivery
}

// Causes of the end of a connection.
var (
	ErrClosed    = errors.New("the connection was closed on this side")
	ErrHubClosed = error(hubClosed{})
	ErrNotAMQP   = errors.New("the peer does not speak AMQP 1.0")
)

// hubClosed is io.EOF with a clearer text.
type hubClosed struct{}

func (hubClosed) Error() string { return "the hub closed the connection" }
func (hubClosed) Unwrap() error { return io.EOF }

const (
	// closeTimeout is how long an orderly close may take.
	closeTimeout = 700 * time.Millisecond
	// drainTime bounds how long pending bytes are written after Close.
	drainTime = 500 * time.Millisecond
	// maxSent is the size of the largest frame that is sent.
	maxSent = 1 << 20
	// minIdle is the shortest idle time-out of a peer that is kept: a frame is written every half.
	minIdle = time.Second
)

// Connect does the handshakes of AMQP over the connections that dialer.Dialer.Dial returned. On
// error the connections are closed; the error is that of Respond, or a cause for dialer.Protocol.
func Connect(ctx context.Context, outer, socket net.Conn, o *Options) (*Conn, error) {
	c := newConn(outer, socket, o.IdleTimeout)
	stop := context.AfterFunc(ctx, func() { c.Fail(ErrClosed) })
	err := c.handshake(o)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		c.start()
		return c, nil
	}
	if first := c.Fail(err); !errors.Is(first, ErrClosed) {
		err = first
	}
	if ctx.Err() == nil && c.Received().IsZero() {
		unanswered := dialer.First{Err: err, Want: "AMQP"}
		if outer == socket {
			unanswered.TLS = "amqps"
		}
		err = unanswered
	}
	return nil, err
}

func newConn(outer, socket net.Conn, idle time.Duration) *Conn {
	if idle == 0 {
		idle = time.Minute
	}
	c := &Conn{outer: outer, socket: socket, idle: idle, done: make(chan struct{}), frame: wire.MinMaxFrameSize}
	if o, ok := outer.(netopt.ControlWriter); ok {
		c.owed = o.ControlPending()
	}
	now := time.Now()
	c.received.base, c.unjammed.base = now, now
	return c
}

// start starts the goroutines of an open connection.
func (c *Conn) start() {
	c.background.Go(func() { c.end(c.read()) })
	if c.owed != nil {
		c.background.Go(c.writeReplies)
	}
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Gone reports whether the connection has ended.
func (c *Conn) Gone() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Loss waits for the end of the connection and returns why it ended: the peer's error, or the
// network's.
func (c *Conn) Loss() error {
	<-c.done
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Fail ends the connection, unless it has ended: it records why, and closes the socket. It returns
// why the connection ended.
func (c *Conn) Fail(err error) error {
	if errors.Is(err, net.ErrClosed) {
		err = ErrClosed
	}
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		for _, t := range [...]*time.Timer{c.beat, c.ending} {
			if t != nil {
				t.Stop()
			}
		}
	}
	err = c.err
	c.mu.Unlock()
	if first {
		close(c.done)
		_ = c.socket.Close()
	}
	return err
}

// end ends the connection after why, the end of reading. What the peer says goes before a failure
// to write, which goes before the end of the network.
func (c *Conn) end(why error) {
	c.mu.Lock()
	unsent := c.unsent
	c.mu.Unlock()
	if unsent != nil && !said(why) {
		why = unsent
	}
	c.Fail(why)
}

// said reports whether an end of reading is what the peer says: a close, an alert, nonsense.
func said(why error) bool {
	switch kind, ok := neterr.Kind(why); {
	case ok:
		return kind != transport.Network && kind != transport.Timeout
	case errors.Is(why, net.ErrClosed), errors.Is(why, ErrClosed), errors.Is(why, io.EOF):
		return false
	}
	return true
}

// Close closes the connection, orderly within 700 ms, and waits for its goroutines. Pending bytes
// are sent before.
func (c *Conn) Close() {
	limit := time.AfterFunc(closeTimeout, func() { c.Fail(ErrClosed) })
	defer limit.Stop()
	c.mu.Lock()
	if c.err == nil && !c.closing {
		c.writeLocked(0, &wire.Close{})
		c.closing, c.drainBy = true, time.Now().Add(drainTime)
		_ = c.socket.SetWriteDeadline(c.drainBy) // shortens a write in progress
		c.kickLocked()
	}
	c.mu.Unlock()
	c.background.Wait()
}

// hangUp closes the connection after its last byte. It bounds the close_notify of TLS, for which
// crypto/tls would wait 5 s.
func (c *Conn) hangUp() {
	if c.outer != c.socket {
		c.mu.Lock()
		rest := time.Until(c.drainBy)
		c.mu.Unlock()
		t := time.AfterFunc(rest, func() { _ = c.socket.Close() })
		_ = c.outer.Close()
		t.Stop()
	}
	c.Fail(ErrClosed)
}

// Sessions returns how many AMQP sessions the peer allows.
func (c *Conn) Sessions() int { return int(c.sessions.Load()) }

// Progress returns when the peer last took bytes from a full buffer, and whether bytes wait in the
// socket's.
func (c *Conn) Progress() (at time.Time, waits bool) {
	at, waits = dialer.Progress(c.socket)
	return times.Later(c.unjammed.get(), at), waits
}

// Received returns when the peer last sent something; zero: never.
func (c *Conn) Received() time.Time { return c.received.get() }

// handshake runs the SASL dialogue, if there is one, and opens the connection.
func (c *Conn) handshake(o *Options) error {
	if o.SASL != nil {
		if err := c.authenticate(o); err != nil {
			return err
		}
	}
	idle := uint32(min(c.idle/2/time.Millisecond, math.MaxUint32))
	open, err := wire.AppendFrame(nil, 0, &wire.Open{ContainerID: "hubline-" + rand.Text(), Hostname: o.Host,
		MaxFrameSize: MaxFrame, ChannelMax: 1<<16 - 1, IdleTimeout: wire.Some(idle)}, nil)
	if err != nil {
		return err
	}
	switch id, err := c.exchangeHeaders(wire.ProtocolAMQP, open); {
	case err != nil:
		return err
	case id == wire.ProtocolSASL && o.SASL == nil:
		return ErrWantsSASL
	case id != wire.ProtocolAMQP:
		return ErrNotAMQP
	}
	for {
		f, err := c.nextFrame(wire.FrameAMQP)
		switch {
		case err != nil:
			return err
		case f == nil: // a keep-alive
		case f.code != codeOpen:
			return misplaced(f.code).during(true)
		default:
			c.opened(f)
			return nil
		}
	}
}

// exchangeHeaders sends a protocol header and what follows in the same flight [2.4.2]. It returns
// the protocol id of the peer's.
func (c *Conn) exchangeHeaders(id byte, next []byte) (byte, error) {
	head := wire.ProtocolHeader(id)
	if err := c.ask(append(head[:], next...)); err != nil {
		return 0, err
	}
	const begin = "AMQP"
	for {
		b := c.in.rest()
		if n := min(len(b), len(begin)); string(b[:n]) != begin[:n] {
			return 0, ErrNotAMQP
		}
		if len(b) >= wire.HeaderSize {
			c.in.at += wire.HeaderSize
			if b[5] != head[5] || b[6] != head[6] || b[7] != head[7] {
				return 0, ErrNotAMQP
			}
			return b[4], nil
		}
		if err := c.fill(wire.HeaderSize); err != nil {
			return 0, err
		}
	}
}

// say sends a frame of the handshake.
func (c *Conn) say(p wire.Performative) error {
	b, err := wire.AppendFrame(nil, 0, p, nil)
	if err != nil {
		return err
	}
	err = c.ask(b)
	clear(b) // it may hold a token
	return err
}

// ask sends p in the handshake. If the peer does not take it, ask waits for what the peer says of
// it outside AMQP, such as an alert about the client's certificate, for reasonTime at most.
func (c *Conn) ask(p []byte) error {
	failed := c.send(p)
	if failed == nil || errors.Is(failed, os.ErrDeadlineExceeded) {
		return failed
	}
	late := time.AfterFunc(reasonTime, func() { c.Fail(failed) })
	defer late.Stop()
	for {
		if err := c.fill(wire.HeaderSize); err != nil {
			if said(err) {
				return err
			}
			return failed
		}
		c.in.at = c.in.end
	}
}

// opened records the peer's open.
func (c *Conn) opened(f *inFrame) {
	const maxFrame, channelMax, idleTimeout = 2, 3, 4
	c.mu.Lock() // Fail may run
	defer c.mu.Unlock()
	c.frame = maxSent
	if !f.null(maxFrame) {
		c.frame = int(min(f.uint32(maxFrame), maxSent))
	}
	highest := uint32(1<<16 - 1)
	if !f.null(channelMax) {
		highest = f.uint32(channelMax)
	}
	c.sessions.Store(int32(highest) + 1)
	if n := f.uint32(idleTimeout); n > 0 {
		every := max(time.Duration(n)*time.Millisecond, minIdle) / 2
		c.beat = time.AfterFunc(every, func() { c.keepAlive(every) })
	}
}

// keepAlive writes an empty frame. The timer calls it.
func (c *Conn) keepAlive(every time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil || c.closing {
		return
	}
	if len(c.out.pending) == 0 {
		c.out.grow(wire.HeaderSize)
		c.out.pending = append(c.out.pending, 0, 0, 0, wire.HeaderSize, 2, wire.FrameAMQP, 0, 0)
		c.kickLocked()
	}
	c.beat.Reset(every)
}
