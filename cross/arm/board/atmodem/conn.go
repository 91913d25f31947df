package atmodem

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// Dial connects to Config.Host. It is an engine.Dial.
//
// Its errors are Network or Timeout, and for some causes another Kind: NotFound (no SIM),
// Unauthorized (PIN), Forbidden (the network denies the SIM, or the SIM is locked), ClockUnset (the
// network has not told the time), Untrusted (the TLS handshake failed), Invalid (host, CA file),
// Unsupported (the modem's firmware cannot verify certificates).
func (m *Modem) Dial(ctx context.Context, _ *transport.Credentials) (engine.Conn, error) {
	return m.DialTo(ctx, m.cfg.Host)
}

// DialTo connects to another host, such as the one that a provisioning service assigned.
func (m *Modem) DialTo(ctx context.Context, host string) (engine.Conn, error) {
	if !isHost(host) {
		return nil, errHost
	}
	s := byContext{ctx}
	if !m.take(s) {
		return nil, lifetime.Cause(ctx)
	}
	defer m.release()
	m.args.host = host
	c, err := m.connect(s)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// connect is DialTo with the line taken. It counts the failures.
func (m *Modem) connect(s stopper) (*conn, error) {
	var err error
	for range maxRestarts {
		restarts := m.restarts
		if err = m.bringUp(s); err == nil || m.restarts == restarts {
			break // else the modem has just started
		}
	}
	if err != nil {
		m.failed(weightOf(err))
		return nil, err
	}
	c, err := m.open(s)
	if err != nil {
		weight := weightRefusal
		if transport.KindOf(err) == transport.Timeout {
			weight = weightFault
		}
		m.failed(weight)
	}
	return c, err
}

// maxRestarts is how often one dial begins again with a modem that restarts.
const maxRestarts = 3

// bringUp makes the data connection, and for TLS waits until the time is known.
func (m *Modem) bringUp(s stopper) error {
	err := m.start(s)
	if err == nil {
		err = m.attach(s)
	}
	if err == nil && !m.cfg.Plain && !m.clockSeen {
		err = m.readClock(s)
	}
	return err
}

// weightOf returns how a failure before the connection counts: states that a reset does not change
// do not.
func weightOf(err error) int {
	if k := transport.KindOf(err); k == transport.Network || k == transport.Timeout {
		return weightFault
	}
	return 0
}

// SetClock sets Now to the network's time. It starts the modem and waits for the network, as a dial
// does, and can be called while there is a connection. Call it before the first dial: tokens cannot
// be signed without. It fails as Dial does; repeat it.
func (m *Modem) SetClock(ctx context.Context) error {
	s := byContext{ctx}
	if !m.take(s) {
		return lifetime.Cause(ctx)
	}
	defer m.release()
	if m.conn == nil || m.conn.lost {
		if err := m.start(s); err != nil {
			m.failed(weightOf(err))
			return err
		}
	}
	return m.readClock(s)
}

// open makes a connection, and closes the one that may be open. Socket ids take turns: news about
// the connection before do not concern this one.
func (m *Modem) open(s stopper) (*conn, error) {
	service := m.service()
	if m.conn != nil {
		m.conn.lost = true
		m.conn = nil
	}
	if m.openID >= 0 {
		m.args.id = m.openID
		_, o := m.run(s, &service.shut, nil, nil)
		if o != done && o != refused {
			return nil, m.errorOf(s, &service.shut, o)
		}
	}
	m.args.id = m.nextID
	m.nextID = (m.nextID + 1) % service.ids
	m.openID = m.args.id
	if _, o := m.run(s, &service.open, nil, nil); o != done {
		return nil, m.errorOf(s, &service.open, o)
	}
	m.conn = &conn{m: m, id: m.args.id, asked: time.Now()}
	return m.conn, nil
}

const (
	// askEvery is how often a reader asks for data that nobody announced: announcements get lost.
	askEvery = 10 * time.Second
	// maxRead and maxSend bound what one command carries.
	maxRead = 512
	maxSend = 1024
	// closeLimit is how long Close waits for the modem.
	closeLimit = time.Second
	// fullLimit is how long the modem may take nothing because its buffer is full.
	fullLimit = 30 * time.Second
	fullWait  = 200 * time.Millisecond
)

// conn is one connection.
type conn struct {
	m        *Modem
	id       int
	closed   atomic.Int64 // when, in milliseconds of the board's clock; 0: open
	deadline atomic.Int64 // milliseconds of the board's clock; 0: none

	// fields of the line's holder
	pending bool // there may be data
	lost    bool
	asked   time.Time
}

func (c *conn) stopped() bool { return c.closed.Load() != 0 }

// grace is how long a command of a closed connection may go on, so that its answer is not left over
// for the next one, and so that what was written is sent.
const grace = 250

// inGrace gives up some time after the connection is closed.
type inGrace struct{ c *conn }

func (s inGrace) stopped() bool {
	at := s.c.closed.Load()
	return at != 0 && time.Now().UnixMilli()-at >= grace
}

// Read implements engine.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for ; ; c.m.cfg.Port.Pause() {
		if c.stopped() {
			return 0, errHungUp
		}
		if len(p) == 0 {
			return 0, nil
		}
		if c.m.take(c) {
			n, err := c.receive(p)
			c.m.release()
			if n > 0 || err != nil {
				return n, err
			}
		}
		if d := c.deadline.Load(); d != 0 && time.Now().UnixMilli() >= d {
			return 0, errTimeout
		}
	}
}

// receive moves data from the modem to p, if there is any. The caller holds the line.
func (c *conn) receive(p []byte) (int, error) {
	m := c.m
	m.poll()
	now := time.Now()
	if !c.pending && (c.lost || now.Sub(c.asked) < askEvery) {
		if c.lost {
			return 0, io.EOF
		}
		return 0, nil
	}
	if m.conn != c || m.unsettled {
		c.lost = true
		return 0, errLost
	}
	c.asked, c.pending = now, false
	service := m.service()
	m.args.id, m.args.length = c.id, min(len(p), maxRead)
	if service.count.text != "" {
		_, o := m.run(inGrace{c}, &service.count, nil, nil)
		if o != done {
			return 0, c.end(o)
		}
		f := service.countField
		if f == byID {
			f = c.id + 1
		}
		n := number(field(m.answer(), f))
		if n <= 0 {
			return 0, nil
		}
		m.args.length = min(m.args.length, n)
	}
	n, o := m.run(inGrace{c}, &service.read, nil, p)
	if o != done {
		return 0, c.end(o)
	}
	if n > 0 {
		c.pending = true
		m.failures = 0 // the hub is there
	}
	return n, nil
}

// end returns the error for a command of the connection that failed. The connection is over.
func (c *conn) end(o outcome) error {
	c.lost = true
	if o == abandoned {
		return errHungUp
	}
	return errLost
}

// Write implements engine.Conn.
func (c *conn) Write(p []byte) (int, error) {
	var since time.Time // when the modem's buffer was found full
	for wrote := 0; ; {
		if wrote == len(p) {
			return wrote, nil
		}
		if c.stopped() || !c.m.take(c) {
			return wrote, errHungUp
		}
		n, o := c.send(p[wrote:min(len(p), wrote+maxSend)])
		c.m.release()
		switch {
		case o == done && n > 0:
			wrote, since = wrote+n, time.Time{}
			continue
		case o != full && o != done:
			return wrote, errLost
		}
		now := time.Now()
		if since.IsZero() {
			since = now
		}
		if now.Sub(since) >= fullLimit {
			return wrote, errNoTake
		}
		for end := now.Add(fullWait); time.Now().Before(end) && !c.stopped(); {
			c.m.cfg.Port.Pause()
		}
	}
}

// send gives p to the modem. The caller holds the line.
func (c *conn) send(p []byte) (int, outcome) {
	m := c.m
	if c.lost || m.conn != c || m.unsettled {
		c.lost = true
		return 0, abandoned
	}
	m.args.id, m.args.length = c.id, len(p)
	n, o := m.run(inGrace{c}, &m.service().send, p, nil)
	if o != done && o != full {
		_ = c.end(o)
	}
	return n, o
}

// Close implements engine.Conn. A socket that it cannot close in time is closed by the next dial.
func (c *conn) Close() error {
	if !c.closed.CompareAndSwap(0, max(time.Now().UnixMilli(), 1)) {
		return nil
	}
	m := c.m
	s := byTime{time.Now().Add(closeLimit)}
	if !m.take(s) {
		return nil
	}
	defer m.release()
	if m.conn != c {
		return nil
	}
	m.conn = nil
	if m.ready && !m.unsettled && !m.torn && m.openID == c.id {
		m.args.id = c.id
		if _, o := m.run(s, &m.service().shut, nil, nil); o == done || o == refused {
			m.openID = -1
		}
	}
	return nil
}

// SetReadDeadline implements engine.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		c.deadline.Store(0)
	} else {
		c.deadline.Store(t.UnixMilli())
	}
	return nil
}
