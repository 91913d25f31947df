package board

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport/mqtt/lean"
)

// Port is a serial line.
//
// Bytes come while the program does something else: signing a token alone takes a small processor
// longer than a UART's FIFO lasts. So on a real board the port needs a ring that an interrupt
// fills, from which Read takes, or a line with flow control (RTS/CTS). A lost byte is not noticed
// here; it breaks the MQTT session, and the client connects anew.
type Port interface {
	// Read takes what has come in, into p, without waiting; 0 when nothing has.
	Read(p []byte) int
	// Write sends the beginning of p, as far as the line takes it without waiting, and returns how
	// many bytes that were; 0 when it takes none.
	Write(p []byte) int
	// Pause lets about a millisecond pass and other goroutines run: time.Sleep on most boards. A line
	// of 115200 baud brings 11 bytes in this time, and UARTs keep 16.
	Pause()
}

// Modem is a network behind a serial line: the other end makes connections (with TLS) when asked
// to, tells their end, and knows the time, as cellular modems and WiFi co-processors do. For such a
// part of a board of yours, write its commands in place of these.
//
// All bytes stand for themselves but Escape, which begins a command:
//
//	Escape Escape           one data byte of that value
//	Escape 'T'              board: what is the time?
//	Escape 'T' 16 hex       modem: milliseconds since 1970; digits 0-9 and a-f
//	Escape 'D' N            board: connect; N is a letter that names the connection
//	Escape 'C' N            modem: connected; data of N follows
//	Escape 'H' N            board: hang up. Modem: there is no connection N (any more)
//
// Escape within a command ends that one and begins another, so a lost byte costs one command.
type Modem struct {
	port Port

	writing chan struct{} // holds a value while somebody writes, so that commands and data do not mix; capacity 1
	torn    bool          // what was written last may end within a command
	reading sync.Mutex
	decoder decoder
	raw     [32]byte
	rest    []byte // of raw: read and not looked at

	name   byte        // of the latest connection
	asked  atomic.Bool // for the time, and it was not told yet
	clock  atomic.Bool // the time was told
	offset atomic.Int64
}

// Escape begins a command on a Modem's line.
const Escape = 0x10

// NewModem returns the modem at the other end of port.
func NewModem(port Port) *Modem {
	return &Modem{port: port, name: 'a' - 1, writing: make(chan struct{}, 1)}
}

// SetClock asks the modem for the time, for as long as patience, and reports whether it answered
// this call. Now is right from then on. Call it before the first Dial, or between connections: what
// comes for a connection is lost. An answer after patience is not taken, for nobody knows how long
// it lay on the line.
func (m *Modem) SetClock(patience time.Duration) bool {
	m.skip()
	m.asked.Store(true)
	m.command('T')
	for end := time.Now().Add(patience); time.Now().Before(end); m.port.Pause() {
		if m.skip(); !m.asked.Load() {
			return true
		}
	}
	return !m.asked.Swap(false)
}

// skip takes what is on the line.
func (m *Modem) skip() {
	m.reading.Lock()
	for m.next().what != nothing {
	}
	m.reading.Unlock()
}

// Now is the time that the modem told, gone on by the board's own clock; 1970 and a little before
// that.
func (m *Modem) Now() time.Time {
	now := time.Now()
	if !m.clock.Load() {
		return now
	}
	return time.UnixMilli(now.UnixMilli() + m.offset.Load())
}

// Dial is a lean.Dial.
func (m *Modem) Dial(ctx context.Context) (lean.Conn, error) {
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
		for e := m.next(); e.what != nothing; e = m.next() { // data are of a connection before this one
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

// lineTime is how long the line may take nothing before what is written is given up: the other end,
// or its flow control, hangs.
const lineTime = 10 * time.Second

// command sends a command. One that the line does not take within commandTime is lost.
func (m *Modem) command(c ...byte) {
	m.writing <- struct{}{}
	if m.torn {
		// ends the command that was begun; a connection that it would be data of has ended
		m.torn = !m.send([]byte{0}, nil, commandTime)
	}
	m.torn = m.torn || !m.send([]byte{Escape}, nil, commandTime) || !m.send(c, nil, commandTime)
	<-m.writing
}

const commandTime = 250 * time.Millisecond

// send sends p, unless the line takes nothing for as long as patience or c is closed, and reports
// whether it did. The caller has writing.
func (m *Modem) send(p []byte, c *modemConn, patience time.Duration) bool {
	var since time.Time // when the line began to take nothing
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
		case now.Sub(since) >= patience:
			return false
		}
		m.port.Pause()
	}
	return true
}

// next returns the next thing on the line. The time it takes itself, whoever is reading. The caller
// has reading.
func (m *Modem) next() element {
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
			if m.asked.Swap(false) {
				m.offset.Store(e.millis - time.Now().UnixMilli())
				m.clock.Store(true)
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
			e := c.m.next()
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
	c.m.writing <- struct{}{} // nothing deferred: that would cost an allocation for each write
	n, err := c.write(p)
	<-c.m.writing
	return n, err
}

// write is Write for who has writing.
func (c *modemConn) write(p []byte) (int, error) {
	start := 0
	for i, b := range p {
		if b == Escape {
			if !c.m.send(p[start:i+1], c, lineTime) {
				return 0, c.stuck()
			}
			start = i // the byte goes out twice
		}
	}
	if !c.m.send(p[start:], c, lineTime) {
		return 0, c.stuck()
	}
	return len(p), nil
}

// stuck says why a write was given up. The caller has writing.
func (c *modemConn) stuck() error {
	c.m.torn = true
	if c.closed.Load() {
		return errHungUp
	}
	return errTimeout{"the line took nothing for 10 s"}
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

// element is one thing on the line.
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

// decoder takes the line apart, byte by byte.
type decoder struct {
	escaped bool
	command byte // whose rest is awaited; 0 for none
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

// hex is the value of a digit; of what is none, more than 15.
func hex(b byte) byte {
	switch {
	case '0' <= b && b <= '9':
		return b - '0'
	case 'a' <= b && b <= 'f':
		return b - 'a' + 10
	}
	return 255
}
