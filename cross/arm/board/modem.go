package board

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
)

// Port is a serial line.
//
// Bytes arrive while the program is busy: signing a token alone takes a small processor longer than
// a UART's FIFO can buffer. So on a real board the port needs a ring that an interrupt fills and
// Read empties, or a line with flow control (RTS/CTS). A lost byte is not detected here; it breaks
// the MQTT session, and the client reconnects.
type Port interface {
	// Read reads the received bytes into p without waiting, and returns 0 if there are none.
	Read(p []byte) int
	// Write sends the beginning of p, as much as the line accepts without waiting. It returns that
	// number of bytes, 0 if it accepts none.
	Write(p []byte) int
	// Pause waits about a millisecond and lets other goroutines run: time.Sleep on most boards. A
	// line of 115200 baud receives 11 bytes in this time, and UARTs buffer 16.
	Pause()
}

// Modem is a network behind a serial line. The other end makes connections (with TLS) on request,
// reports their end, and knows the time, as cellular modems and WiFi co-processors do. For such a
// part of your own board, replace these commands by its own.
//
// Each byte except Escape is data. Escape begins a command:
//
//	Escape Escape           one data byte of that value
//	Escape 'T'              board: what is the time?
//	Escape 'T' 16 hex       modem: milliseconds since 1970; digits 0-9 and a-f
//	Escape 'N' host 0       board: the next connections are with this host
//	Escape 'D' N            board: connect; N is a letter that names the connection
//	Escape 'C' N            modem: connected; data of N follows
//	Escape 'H' N            board: hang up, whatever the name. Modem: there is no connection N (any more)
//
// Escape within a command ends it and begins another one, so a lost byte costs one command.
type Modem struct {
	port Port

	writing chan struct{} // holds a value during a write, so that commands and data do not mix; capacity 1
	torn    bool          // the last write may have ended within a command
	reading sync.Mutex
	decoder decoder
	raw     [32]byte
	rest    []byte // of raw: read and not processed

	name  byte        // of the latest connection
	asked atomic.Bool // the time was requested and has not arrived
	ahead int64       // the arrived time minus the own clock's, in milliseconds; valid while not asked
	clock Clock
}

// Escape begins a command on a Modem's line.
const Escape = 0x10

// NewModem returns the modem at the other end of port. It hangs up the connection of a board that
// was reset: its data and its end would be taken for those of the first dial. SetClock, which waits
// for an answer, discards what of it is still on the line.
func NewModem(port Port) *Modem {
	m := &Modem{port: port, name: 'z', writing: make(chan struct{}, 1)}
	m.command('H', m.name)
	return m
}

// clockSlack is how far two answers may differ from the time between them, in milliseconds.
const clockSlack = 2000

// SetClock asks the modem for the time until two answers in a row agree, because noise on the line
// can change a digit. It reports whether they came within timeout. After that Now is right. Call it
// before the first Dial, or between connections: it discards data of a connection. It discards a
// later answer, because the age of that answer is unknown.
func (m *Modem) SetClock(timeout time.Duration) bool {
	m.skip()
	m.ask()
	var latest int64 // m.ahead by the answer before
	answered := false
	for end := time.Now().Add(timeout); time.Now().Before(end); m.port.Pause() {
		if m.skip(); m.asked.Load() {
			continue
		}
		if apart := m.ahead - latest; answered && -clockSlack <= apart && apart <= clockSlack {
			m.clock.offset.Store(m.ahead)
			return true
		}
		latest, answered = m.ahead, true
		m.ask()
	}
	m.asked.Store(false)
	return false
}

func (m *Modem) ask() {
	m.asked.Store(true)
	m.command('T')
}

// skip discards the pending data on the line.
func (m *Modem) skip() {
	m.reading.Lock()
	for m.nextLocked().what != nothing {
	}
	m.reading.Unlock()
}

// Now returns the modem's time, advanced by the board's own clock. Before SetClock it is shortly
// after the beginning of 1970.
func (m *Modem) Now() time.Time { return m.clock.Now() }

// DialTo tells the modem the name of the host and dials.
func (m *Modem) DialTo(ctx context.Context, host string) (engine.Conn, error) {
	m.command(append(append([]byte{'N'}, host...), 0)...)
	return m.Dial(ctx, nil)
}

// Dial is an engine.Dial, to the latest host of DialTo. Without one, the modem knows where to
// connect.
func (m *Modem) Dial(ctx context.Context, _ *transport.Credentials) (engine.Conn, error) {
	if m.name++; m.name > 'z' {
		m.name = 'a'
	}
	c := &modemConn{m: m, name: m.name}
	m.command('D', c.name)
	for ; ; m.port.Pause() {
		if err := ctx.Err(); err != nil {
			m.command('H', c.name)
			return nil, err
		}
		m.reading.Lock()
		up, down := false, false
		for e := m.nextLocked(); e.what != nothing; e = m.nextLocked() { // data of an earlier connection
			if e.name == c.name {
				up, down = e.what == connected, e.what == hungUp
				if up || down {
					break
				}
			}
		}
		m.reading.Unlock()
		switch {
		case up:
			return c, nil
		case down:
			return nil, errNoCarrier
		}
	}
}

// lineTimeout is how long the line may accept nothing before a write fails: the other end, or its
// flow control, hangs.
const lineTimeout = 10 * time.Second

// command sends a command. It is lost if the line does not accept it within commandTimeout.
func (m *Modem) command(c ...byte) {
	m.writing <- struct{}{}
	if m.torn {
		// ends the torn command; if this byte were data, its connection has ended
		m.torn = !m.sendLocked([]byte{0}, nil, commandTimeout)
	}
	m.torn = m.torn || !m.sendLocked([]byte{Escape}, nil, commandTimeout) || !m.sendLocked(c, nil, commandTimeout)
	<-m.writing
}

const commandTimeout = 250 * time.Millisecond

// sendLocked sends p and reports success. It fails if the line accepts nothing for timeout, or
// c is closed. The caller holds writing.
func (m *Modem) sendLocked(p []byte, c *modemConn, timeout time.Duration) bool {
	var since time.Time // when the line stopped accepting
	for len(p) > 0 {
		if c != nil && c.closed.Load() {
			return false
		}
		if n := m.port.Write(p); n > 0 {
			p, since = p[n:], time.Time{}
			continue
		}
		switch now := time.Now(); {
		case since.IsZero():
			since = now
		case now.Sub(since) >= timeout:
			return false
		}
		m.port.Pause()
	}
	return true
}

// nextLocked returns the next element on the line. It processes the time itself, for any reader.
// The caller holds reading.
func (m *Modem) nextLocked() element {
	for {
		if len(m.rest) == 0 {
			n := m.port.Read(m.raw[:])
			if n == 0 {
				return element{}
			}
			m.rest = m.raw[:n]
		}
		b := m.rest[0]
		m.rest = m.rest[1:]
		switch e := m.decoder.feed(b); e.what {
		case nothing:
		case theTime:
			if m.asked.Load() {
				m.ahead = e.millis - time.Now().UnixMilli()
				m.asked.Store(false)
			}
		default:
			return e
		}
	}
}

// modemConn is one connection.
type modemConn struct {
	m        *Modem
	name     byte
	closed   atomic.Bool
	deadline atomic.Int64 // milliseconds of the board's clock; 0: none
}

func (c *modemConn) Read(p []byte) (int, error) {
	for ; ; c.m.port.Pause() {
		if c.closed.Load() {
			return 0, errHungUp
		}
		c.m.reading.Lock()
		n, lost := 0, false
		for n < len(p) && !lost {
			e := c.m.nextLocked()
			if e.what == nothing {
				break
			}
			switch {
			case e.what == data:
				p[n] = e.data
				n++
			case e.what == hungUp && e.name == c.name:
				lost = true
			}
		}
		c.m.reading.Unlock()
		if lost {
			c.closed.Store(true)
			if n == 0 {
				return 0, io.EOF
			}
		}
		if n > 0 {
			return n, nil
		}
		if d := c.deadline.Load(); d != 0 && time.Now().UnixMilli() >= d {
			return 0, errTimeout{"nothing came in time"}
		}
	}
}

func (c *modemConn) Write(p []byte) (int, error) {
	c.m.writing <- struct{}{} // no defer: it would cost an allocation per write
	n, err := c.writeLocked(p)
	<-c.m.writing
	return n, err
}

// writeLocked is Write without locking. The caller holds writing.
func (c *modemConn) writeLocked(p []byte) (int, error) {
	start := 0
	for i, b := range p {
		if b == Escape {
			if !c.m.sendLocked(p[start:i+1], c, lineTimeout) {
				return 0, c.writeFailedLocked()
			}
			start = i // the byte goes out twice
		}
	}
	if !c.m.sendLocked(p[start:], c, lineTimeout) {
		return 0, c.writeFailedLocked()
	}
	return len(p), nil
}

// writeFailedLocked returns why a write was abandoned. The caller holds writing.
func (c *modemConn) writeFailedLocked() error {
	c.m.torn = true
	if c.closed.Load() {
		return errHungUp
	}
	return errTimeout{"the line accepted nothing for 10 s"}
}

func (c *modemConn) Close() error {
	if !c.closed.Swap(true) {
		c.m.command('H', c.name)
	}
	return nil
}

func (c *modemConn) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		c.deadline.Store(0)
	} else {
		c.deadline.Store(t.UnixMilli())
	}
	return nil
}

var (
	errNoCarrier = errors.New("the modem could not connect")
	errHungUp    = errors.New("the connection was hung up")
)

type errTimeout struct{ text string }

func (e errTimeout) Error() string { return e.text }
func (errTimeout) Timeout() bool   { return true }

// element is one unit on the line: a data byte, a command or nothing.
type element struct {
	what   what
	data   byte
	name   byte
	millis int64
}

type what uint8

const (
	nothing what = iota
	data
	connected
	hungUp
	theTime
)

// decoder parses the line byte by byte.
type decoder struct {
	escaped bool
	command byte // the incomplete command; 0 for none
	digits  int
	millis  int64
}

func (d *decoder) feed(b byte) element {
	switch {
	case b == Escape && !d.escaped:
		d.escaped, d.command = true, 0
		return element{}
	case d.command == 'T':
		digit := hex(b)
		if digit > 15 { // the rest was lost
			d.command = 0
			return element{what: data, data: b}
		}
		d.millis = d.millis<<4 | int64(digit)
		if d.digits++; d.digits < 16 {
			return element{}
		}
		d.command = 0
		return element{what: theTime, millis: d.millis}
	case d.command != 0:
		e := element{what: connected, name: b}
		if d.command == 'H' {
			e.what = hungUp
		}
		d.command = 0
		return e
	case d.escaped:
		d.escaped = false
		switch b {
		case Escape:
			return element{what: data, data: b}
		case 'T':
			d.digits, d.millis = 0, 0
			d.command = b
		case 'C', 'H':
			d.command = b
		}
		return element{}
	}
	return element{what: data, data: b}
}

// hex returns the value of a digit, or more than 15 for another byte.
func hex(b byte) byte {
	switch {
	case '0' <= b && b <= '9':
		return b - '0'
	case 'a' <= b && b <= 'f':
		return b - 'a' + 10
	}
	return 255
}
