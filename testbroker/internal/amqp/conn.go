package amqp

import (
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

const (
	readSize     = 16 << 10
	leastIdle    = 10 * time.Millisecond // shortest accepted idle-time-out of a client
	keepBuffer   = 1 << 20               // the largest buffer for output that is used again
	keepIdle     = 4 << 10               // the same after output that fits into it
	sessionStart = 0                     // the first transfer id
	maxFrame     = 1 << 30               // the largest frame ever sent
)

// Conn is a connection.
type Conn struct {
	net     io.ReadWriter
	cfg     Config
	handler Handler

	// Used only by the goroutine in Serve.
	buf       []byte // the buffer for input
	in        []byte // the part of buf with bytes read and not handled
	small     int    // frames of less than readSize since the last larger one
	limit     uint32 // of incoming frames
	opened    bool
	handshake bool               // the SASL handshake is complete
	framing   bool               // AMQP frames are expected
	framed    bool               // a frame was received since heard was set
	parts     map[*Link]struct{} // links with an incomplete message; some may be gone

	mu       sync.Mutex // guards the fields below, and all sessions and links; held over writes, which never block
	out      []byte     // bytes to write
	busy     bool       // Serve writes out before it waits for input
	said     bool       // an open was sent
	dead     bool       // a close was sent, or the connection has ended
	frame    uint32     // size limit of outgoing frames
	sessions map[uint16]*Session
	toTell   []*Session // sessions with dispositions, windows or credit to send
	heard    time.Time  // when the last frame was handled
	wrote    time.Time
	idle     *time.Timer
	alive    *time.Timer
	beat     time.Duration
	timers   sync.WaitGroup // grows only while dead is false
}

// NewConn makes a connection on a stream whose writes must never block.
func NewConn(stream io.ReadWriter, cfg Config, h Handler) *Conn {
	return &Conn{
		net: stream, cfg: cfg, handler: h, limit: max(cfg.HandshakeFrame, wire.MinMaxFrameSize), frame: wire.MinMaxFrameSize,
		sessions: make(map[uint16]*Session),
		parts:    make(map[*Link]struct{}),
	}
}

// errParted is the internal result of Serve when the client has closed the connection.
var errParted = errors.New("amqp: closed by the client")

// Serve runs the connection. It returns nil when the client has closed it, a *wire.Error when the
// server has closed it because of a violation, and otherwise the error that ended the stream. It
// does not close the stream. After it returns, no method of the handler is called.
func (c *Conn) Serve() error {
	err := c.serve()
	var violation *wire.Error
	if errors.As(err, &violation) {
		if c.framing && !c.opened { // a close requires an open first [2.4.3]
			c.answerOpen(&wire.Open{MaxFrameSize: wire.MinMaxFrameSize})
		}
		c.Close(violation)
	}
	c.mu.Lock()
	c.busy = false
	if !c.dead {
		c.flushLocked()
	}
	c.dead = true
	for _, t := range []*time.Timer{c.idle, c.alive} {
		if t != nil {
			t.Stop()
		}
	}
	var left []*Link
	for _, s := range c.sortedLocked() {
		left = append(left, s.releaseLocked()...)
	}
	clear(c.sessions)
	c.mu.Unlock()
	c.timers.Wait()
	for _, l := range left {
		c.handler.Detached(l)
	}
	if errors.Is(err, errParted) {
		return nil
	}
	return err
}

func (c *Conn) sortedLocked() []*Session {
	all := make([]*Session, 0, len(c.sessions))
	for _, s := range c.sessions {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b *Session) int { return int(a.channel) - int(b.channel) })
	return all
}

func (c *Conn) serve() error {
	if err := c.header(); err != nil {
		return err
	}
	for {
		f, err := c.next()
		if err != nil {
			return err
		}
		if f.Type != wire.FrameAMQP {
			return wire.Errorf(wire.FramingError, "frame of SASL after the handshake")
		}
		if len(f.Body) == 0 {
			continue
		}
		p, payload, err := f.Performative()
		if err != nil {
			return err
		}
		if err := c.dispatch(f.Channel, p, payload); err != nil {
			return err
		}
	}
}

// fill reads until n bytes are buffered. Before it waits, it flushes the output.
func (c *Conn) fill(n int) error {
	for len(c.in) < n {
		if err := c.read(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) read() error {
	c.mu.Lock()
	c.flushLocked()
	c.busy = false
	if c.framed { // only complete frames count as activity, not single bytes
		c.framed, c.heard = false, time.Now()
	}
	c.mu.Unlock()
	c.makeRoom()
	n, err := c.net.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	c.mu.Lock()
	c.busy = true
	c.mu.Unlock()
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// makeRoom makes room for a read. A buffer for large frames is kept until two small ones have come:
// the last frame of a large message is one.
func (c *Conn) makeRoom() {
	need := max(readSize, 2*len(c.in))
	shrink := c.small > 1 && len(c.buf) > max(need, 2*readSize)
	if cap(c.in)-len(c.in) >= readSize/4 && !shrink {
		return
	}
	old := c.in
	if len(c.buf) < need || shrink {
		c.buf = make([]byte, need)
	}
	c.in = c.buf[:copy(c.buf, old)]
}

// next returns the next frame. It is valid until the next call.
func (c *Conn) next() (wire.Frame, error) {
	for {
		f, n, err := wire.Split(c.in, c.limit)
		if err != nil {
			return f, err
		}
		if n > 0 {
			c.in, c.framed = c.in[n:], true
			if c.small++; n > readSize {
				c.small = 0
			}
			return f, nil
		}
		if err := c.read(); err != nil {
			return f, err
		}
	}
}

func (c *Conn) dispatch(channel uint16, p wire.Performative, payload []byte) error {
	switch p := p.(type) {
	case *wire.Open:
		return c.open(channel, p)
	case *wire.Close:
		if !c.opened {
			break
		}
		c.Close(nil)
		return errParted
	}
	if !c.opened {
		return wire.Errorf(wire.IllegalState, "%T before open", p)
	}
	if channel > c.cfg.ChannelMax {
		return wire.Errorf(wire.FramingError, "channel %d, the highest is %d", channel, c.cfg.ChannelMax)
	}
	c.mu.Lock()
	s, dead := c.sessions[channel], c.dead
	c.mu.Unlock()
	if dead {
		return nil
	}
	if begin, ok := p.(*wire.Begin); ok {
		return c.begin(channel, s, begin)
	}
	if s == nil {
		return wire.Errorf(wire.FramingError, "%T on channel %d, which has no session", p, channel)
	}
	err := s.handle(p, payload)
	var broken *sessionError
	if errors.As(err, &broken) {
		s.fail(broken.cause)
		return nil
	}
	return err
}
