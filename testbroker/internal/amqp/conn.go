package amqp

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

const (
	readSize     = 16 << 10
	leastIdle    = 10 * time.Millisecond // of a client's idle-time-out
	keepBuffer   = 1 << 20               // a burst should not be paid for until the end
	sessionStart = 0                     // the first transfer id
)

// Conn is a connection.
type Conn struct {
	net     io.ReadWriter
	cfg     Config
	handler Handler

	// Of the goroutine in Serve.
	in        []byte // read and not dealt with
	limit     uint32 // of frames that come
	opened    bool
	handshake bool // SASL is through

	mu       sync.Mutex // guards what follows, and all sessions and links; held over writes, which never wait
	out      []byte     // not written yet
	busy     bool       // Serve writes out when it has nothing more to read
	said     bool       // an open was sent
	dead     bool       // a close was sent, or the connection has ended
	frame    uint32     // limit of frames that go
	sessions map[uint16]*Session
	unsaid   []*Session // with dispositions, windows or credit to be told
	heard    time.Time
	wrote    time.Time
	idle     *time.Timer
	alive    *time.Timer
	beat     time.Duration
	timers   sync.WaitGroup // grows only while dead is false
}

// NewConn makes a connection of a stream whose writes must never wait.
func NewConn(stream io.ReadWriter, cfg Config, h Handler) *Conn {
	return &Conn{
		net: stream, cfg: cfg, handler: h, limit: wire.MinMaxFrameSize, frame: wire.MinMaxFrameSize, sessions: make(map[uint16]*Session),
	}
}

// errParted is how Serve ends inwardly when the client has said goodbye.
var errParted = errors.New("amqp: closed by the client")

// Serve is the life of the connection. It returns nil when the client has closed it, a *wire.Error when the server has
// for a fault of the client, and otherwise what ended the stream. It does not close the stream. When it returns, no
// method of the handler will be called any more.
func (c *Conn) Serve() error {
	err := c.serve()
	var violation *wire.Error
	if errors.As(err, &violation) {
		if !c.opened { // there is no way to close what was never opened but to open it first [2.4.3]
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
	if err == errParted {
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

// header reads the protocol header and, if it is that of SASL, goes through the dialogue and reads another.
func (c *Conn) header() error {
	first, err := c.protocol()
	if err != nil {
		return err
	}
	if first == wire.ProtocolSASL {
		if err := c.sasl(); err != nil {
			return err
		}
		c.handshake = true
		if first, err = c.protocol(); err != nil {
			return err
		}
	}
	if first != wire.ProtocolAMQP {
		return c.wrongHeader()
	}
	c.sayHeader(wire.ProtocolAMQP)
	return nil
}

var errHeader = errors.New("amqp: protocol header that the server does not speak")

// protocol reads a protocol header and returns its id.
func (c *Conn) protocol() (byte, error) {
	if err := c.fill(wire.HeaderSize); err != nil {
		return 0, err
	}
	got := c.in[:wire.HeaderSize]
	c.in = c.in[wire.HeaderSize:]
	want := wire.ProtocolHeader(got[4])
	if id := got[4]; !bytes.Equal(got, want[:]) || id != wire.ProtocolAMQP && id != wire.ProtocolSASL {
		return 0, c.wrongHeader()
	}
	return got[4], nil
}

// wrongHeader answers with the header that would have been right [2.2].
func (c *Conn) wrongHeader() error {
	id := wire.ProtocolSASL
	if c.handshake {
		id = wire.ProtocolAMQP
	}
	c.sayHeader(id)
	return errHeader
}

func (c *Conn) sayHeader(id byte) {
	h := wire.ProtocolHeader(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out = append(c.out, h[:]...)
}

// fill reads until n bytes are there. Before it waits, it writes out what is to be said.
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
	c.mu.Unlock()
	if cap(c.in)-len(c.in) < readSize/4 {
		c.in = append(make([]byte, 0, max(readSize, 2*len(c.in))), c.in...)
	}
	n, err := c.net.Read(c.in[len(c.in):cap(c.in)])
	c.in = c.in[:len(c.in)+n]
	c.mu.Lock()
	c.busy = true
	c.heard = time.Now()
	c.mu.Unlock()
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// next returns the next frame, valid until the one after it is asked for.
func (c *Conn) next() (wire.Frame, error) {
	for {
		f, n, err := wire.Split(c.in, c.limit)
		if err != nil {
			return f, err
		}
		if n > 0 {
			c.in = c.in[n:]
			return f, nil
		}
		if err := c.read(); err != nil {
			return f, err
		}
	}
}

// sasl is the server's side of the dialogue. A failure is told by the outcome, and ends the connection.
func (c *Conn) sasl() error {
	c.sayHeader(wire.ProtocolSASL)
	offered := c.handler.Mechanisms()
	c.say(0, &wire.Mechanisms{Mechanisms: offered}, nil)
	f, err := c.next()
	if err != nil {
		return err
	}
	if f.Type != wire.FrameSASL {
		return errors.New("amqp: frame of AMQP in the dialogue of SASL")
	}
	p, _, err := f.Performative()
	if err != nil {
		return errors.New("amqp: SASL: " + err.Error())
	}
	init, ok := p.(*wire.Init)
	if !ok {
		return errors.New("amqp: SASL: not an init")
	}
	code := wire.SASLAuth
	if slices.Contains(offered, init.Mechanism) {
		code = c.handler.Authenticate(init.Mechanism, init.InitialResponse)
	}
	c.say(0, &wire.Outcome{Code: code}, nil)
	if code != wire.SASLOK {
		return &OutcomeError{code}
	}
	return nil
}

// OutcomeError is how a connection ends whose client was not authenticated.
type OutcomeError struct{ Code uint8 }

// Error tells the code.
func (e *OutcomeError) Error() string {
	return "amqp: SASL outcome " + string('0'+rune(e.Code))
}

// say appends a frame to what is to be written. What the server says is of its own making and can be encoded, but for
// texts that a handler took from somewhere; those are left out.
func (c *Conn) say(channel uint16, p wire.Performative, payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sayLocked(channel, p, payload)
}

func (c *Conn) sayLocked(channel uint16, p wire.Performative, payload []byte) {
	if c.dead {
		return
	}
	out, err := wire.AppendFrame(c.out, channel, p, payload)
	if err != nil || len(out)-len(c.out) > int(c.frame) {
		// A description that cannot be sent, or does not fit.
		bare := func(e *wire.Error) *wire.Error {
			if e == nil {
				return nil
			}
			return &wire.Error{Condition: e.Condition}
		}
		switch p := p.(type) {
		case *wire.Detach:
			out, err = wire.AppendFrame(c.out, channel, &wire.Detach{Handle: p.Handle, Closed: p.Closed, Error: bare(p.Error)}, nil)
		case *wire.End:
			out, err = wire.AppendFrame(c.out, channel, &wire.End{Error: bare(p.Error)}, nil)
		case *wire.Close:
			out, err = wire.AppendFrame(c.out, channel, &wire.Close{Error: bare(p.Error)}, nil)
		}
		if err != nil {
			return
		}
	}
	c.out = out
}

// flushLocked writes out what is to be said. Only here windows and credit are renewed, so that none counts of which the
// client cannot know.
func (c *Conn) flushLocked() {
	for _, s := range c.unsaid {
		s.renewLocked()
	}
	c.tellLocked()
	c.unsaid = c.unsaid[:0]
	if len(c.out) == 0 {
		return
	}
	c.net.Write(c.out) // who reads learns of an error
	c.wrote = time.Now()
	if c.out = c.out[:0]; cap(c.out) > keepBuffer {
		c.out = nil
	}
}

// tellLocked appends the dispositions that were put together.
func (c *Conn) tellLocked() {
	for _, s := range c.unsaid {
		s.tellLocked()
	}
}

// doneLocked ends a method that may be called from anywhere.
func (c *Conn) doneLocked() {
	if !c.busy {
		c.flushLocked()
	}
}

// Flush writes out everything that was said so far.
func (c *Conn) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flushLocked()
}

// Close sends a close, with an error unless it is nil, and nothing after it. What becomes of the stream is up to the
// caller. Without an open nothing is sent.
func (c *Conn) Close(e *wire.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	c.closeLocked(e)
}

func (c *Conn) closeLocked(e *wire.Error) {
	if c.said {
		c.tellLocked()
		c.sayLocked(0, &wire.Close{Error: e}, nil)
	}
	c.flushLocked()
	c.dead = true
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

func (c *Conn) open(channel uint16, o *wire.Open) error {
	if c.opened {
		return wire.Errorf(wire.IllegalState, "second open")
	}
	refusal := c.handler.Open(o)
	var violation *wire.Error
	if refusal != nil && !errors.As(refusal, &violation) {
		return refusal
	}
	c.answerOpen(o)
	switch idle := time.Duration(o.IdleTimeout.V) * time.Millisecond; {
	case refusal != nil:
		return violation
	case channel != 0:
		return wire.Errorf(wire.FramingError, "open on channel %d", channel)
	case o.ContainerID == "":
		return wire.Errorf(wire.InvalidField, "open without a container id")
	case o.MaxFrameSize < wire.MinMaxFrameSize:
		return wire.Errorf(wire.InvalidField, "max-frame-size %d, %d at least", o.MaxFrameSize, wire.MinMaxFrameSize)
	case idle > 0 && idle < leastIdle:
		return wire.Errorf(wire.NotAllowed, "idle-time-out of %s, %s at least", idle, leastIdle)
	default:
		c.watch(idle)
	}
	c.Flush()
	return c.handler.Opened()
}

func (c *Conn) answerOpen(o *wire.Open) {
	answer := &wire.Open{ContainerID: c.cfg.ContainerID, MaxFrameSize: c.cfg.MaxFrameSize, ChannelMax: c.cfg.ChannelMax}
	if c.cfg.IdleTimeout > 0 {
		answer.IdleTimeout = wire.Some(uint32((c.cfg.IdleTimeout / 2).Milliseconds()))
	}
	c.say(0, answer, nil)
	c.mu.Lock()
	c.frame, c.said = max(o.MaxFrameSize, wire.MinMaxFrameSize), true
	c.mu.Unlock()
	c.opened, c.limit = true, c.cfg.MaxFrameSize
}

// watch sets the timers: that which ends a silent connection, and that which keeps it alive.
func (c *Conn) watch(theirs time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dead {
		return
	}
	if c.cfg.IdleTimeout > 0 {
		c.idle = time.AfterFunc(c.cfg.IdleTimeout, c.timer(c.silentLocked))
	}
	if theirs > 0 {
		c.beat = theirs / 2
		c.alive = time.AfterFunc(c.beat, c.timer(c.beatLocked))
	}
}

// timer makes a function that a timer may call: Serve waits for it, and it does nothing after the end.
func (c *Conn) timer(do func() (then func())) func() {
	return func() {
		c.mu.Lock()
		if c.dead {
			c.mu.Unlock()
			return
		}
		c.timers.Add(1)
		then := do()
		c.mu.Unlock()
		if then != nil {
			then()
		}
		c.timers.Done()
	}
}

func (c *Conn) silentLocked() func() {
	if left := c.cfg.IdleTimeout - time.Since(c.heard); left > 0 || c.busy {
		c.idle.Reset(max(left, time.Millisecond))
		return nil
	}
	c.closeLocked(wire.Errorf(wire.ResourceLimitExceeded, "nothing was heard for %s", c.cfg.IdleTimeout))
	return c.handler.Idle
}

func (c *Conn) beatLocked() func() {
	if left := c.beat - time.Since(c.wrote); left > 0 {
		c.alive.Reset(left)
		return nil
	}
	c.sayLocked(0, nil, nil)
	c.flushLocked()
	c.alive.Reset(c.beat)
	return nil
}
