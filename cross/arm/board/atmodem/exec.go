package atmodem

import (
	"context"
	"strconv"
	"time"
)

// outcome is how a command ended.
type outcome uint8

const (
	pending outcome = iota
	done
	refused   // by the modem, which is in order; Modem.code has its number
	full      // the modem's send buffer is full; it took nothing
	silent    // the answer did not come in time, or not whole
	rebooted  // the modem has started anew
	stuck     // the line accepts nothing
	abandoned // the caller gave up
)

// stopper says when a caller gives up.
type stopper interface{ stopped() bool }

// byContext gives up when its context ends.
type byContext struct{ ctx context.Context }

func (s byContext) stopped() bool { return s.ctx.Err() != nil }

// byTime gives up at a time.
type byTime struct{ end time.Time }

func (s byTime) stopped() bool { return !time.Now().Before(s.end) }

// never does not give up: commands have limits of their own.
type never struct{}

func (never) stopped() bool { return false }

// take waits for the line, unless the caller gives up.
func (m *Modem) take(s stopper) bool {
	for ; ; m.cfg.Port.Pause() {
		select {
		case m.busy <- struct{}{}:
			return true
		default:
		}
		if s.stopped() {
			return false
		}
	}
}

func (m *Modem) release() { <-m.busy }

// lineTimeout is how long the line may accept nothing.
const lineTimeout = 10 * time.Second

// write sends p, and reports success.
func (m *Modem) write(p []byte) bool {
	var since time.Time
	for len(p) > 0 {
		if n := m.cfg.Port.Write(p); n > 0 {
			p, since = p[min(n, len(p)):], time.Time{}
			continue
		}
		switch now := time.Now(); {
		case since.IsZero():
			since = now
		case now.Sub(since) >= lineTimeout:
			return false
		}
		m.cfg.Port.Pause()
	}
	return true
}

// appendCommand appends the command with its placeholders replaced.
func (m *Modem) appendCommand(b []byte, text string) []byte {
	b = append(b, "AT"...)
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b = append(b, text[i])
			continue
		}
		i++
		switch text[i] {
		case 'a':
			b = append(b, m.cfg.APN...)
		case 'u':
			b = append(b, m.cfg.User...)
		case 'w':
			b = append(b, m.cfg.Password...)
		case 't':
			b = strconv.AppendInt(b, int64(m.cfg.authentication()), 10)
		case 'k':
			b = append(b, m.cfg.PIN...)
		case 'f':
			b = append(b, m.cfg.CA...)
		case 'h':
			b = append(b, m.args.host...)
		case 'p':
			b = strconv.AppendInt(b, int64(m.cfg.TCPPort), 10)
		case 'i':
			b = strconv.AppendInt(b, int64(m.args.id), 10)
		case 'n':
			b = strconv.AppendInt(b, int64(m.args.length), 10)
		}
	}
	return append(b, '\r')
}

// authentication is the number of PAP or CHAP, 0 for none.
func (c *Config) authentication() int {
	switch {
	case c.User == "":
		return 0
	case c.CHAP:
		return 2
	}
	return 1
}

// applies reports whether the configuration needs the command.
func (m *Modem) applies(c *command) bool {
	return (!c.user || m.cfg.User != "") && (!c.name || !m.cfg.AnyName)
}

// maxCommand has room for a command with an APN, a user and a password.
const maxCommand = 3*maxText + 40

// exchange is a command under way.
type exchange struct {
	c       *command
	out, in []byte

	sent     bool // out
	final    bool // the final line has come
	answered bool // the info line has come
	missing  int  // bytes of data
	got      int
	tail     string // of what follows the data
	header   bool   // the line before data has come
}

// run executes a command. out is the payload to send, nil without; in is room for data, of which
// Modem.args.length was requested. n is how many bytes of out the modem took, or of in it gave.
//
// The answer is complete when the final line and, if c has them, the info line and the data have
// come, in any order. But a final line before an info line that cannot come later is the end of an
// earlier answer.
func (m *Modem) run(s stopper, c *command, out, in []byte) (n int, o outcome) {
	restarts := m.restarts
	m.code, m.infoLen = -1, 0
	if m.poll(); m.restarts != restarts { // before the command
		return 0, rebooted
	}
	if !m.write(m.appendCommand(m.text[:0], c.text)) {
		m.unsettled = true
		return 0, stuck
	}
	limit := time.Duration(c.seconds) * time.Second
	if limit == 0 {
		limit = defaultSeconds * time.Second
	}
	x := exchange{c: c, out: out, in: in}
	for end := time.Now().Add(limit); ; {
		progress, o := m.advance(&x)
		switch {
		case m.restarts != restarts:
			return 0, rebooted
		case o == stuck:
			m.unsettled, m.torn = true, true
			return 0, stuck
		case o != pending:
			return x.got, o
		case s.stopped():
			m.unsettled, m.torn = true, m.torn || x.out != nil && !x.sent
			return 0, abandoned
		case !time.Now().Before(end):
			m.unsettled, m.torn = true, m.torn || x.out != nil
			return 0, silent
		case !progress:
			m.cfg.Port.Pause()
		}
	}
}

// advance takes data or a line, and reports whether there was one.
func (m *Modem) advance(x *exchange) (progress bool, o outcome) {
	if x.missing > 0 {
		n := m.line.data(x.in[x.got : x.got+x.missing])
		x.got, x.missing = x.got+n, x.missing-n
		return n > 0, pending
	}
	if x.tail != "" {
		n := m.line.data(m.text[:1])
		if n > 0 && m.text[0] != x.tail[0] {
			m.unsettled = true
			return true, silent // a byte of the data was lost, and this one belongs to them
		}
		x.tail = x.tail[n:]
		return n > 0, pending
	}
	text := m.line.next(x.out != nil && !x.sent && !x.c.connect)
	if text == nil {
		return false, pending
	}
	if x.out != nil && !x.sent && string(text) == x.c.prompt() {
		if !m.write(x.out) {
			return true, stuck
		}
		x.sent = true
		return true, pending
	}
	return true, m.accept(x, text)
}

// prompt is what the modem sends when it waits for the payload.
func (c *command) prompt() string {
	if c.connect {
		return "CONNECT"
	}
	return ">"
}

// final is the line that ends the answer.
func (c *command) final() string {
	if c.sendOK {
		return "SEND OK"
	}
	return "OK"
}

// accept processes a line of an answer, or between answers.
func (m *Modem) accept(x *exchange, text []byte) outcome {
	c := x.c
	switch {
	case c.data != "" && !x.header && begins(text, c.data):
		rest := text[len(c.data):]
		n := number(field(rest, int(c.length)))
		if n < 0 || n > min(m.args.length, len(x.in)) || c.own && number(field(rest, 1)) != m.args.id {
			m.unsettled = true
			return silent
		}
		if x.header, x.missing = true, n; n > 0 {
			x.tail = "\r\n"
		}
	case c.info != "" && begins(text, c.info):
		rest := text[len(c.info):]
		if c.own && number(field(rest, 1)) != m.args.id {
			break
		}
		x.answered = true
		m.infoLen = copy(m.info[:], rest)
	case string(text) == c.final():
		x.final = x.out == nil || x.sent
		if c.info != "" && !c.async && !x.answered || c.data != "" && !c.async && !x.header {
			x.final = false
		}
	case string(text) == "SEND FAIL" && x.sent:
		return full
	case string(text) == "ERROR", begins(text, "+CME ERROR:"):
		if n := number(trim(text[min(len(text), len("+CME ERROR:")):])); n >= 0 {
			m.code = n
		} else if x.answered && c.code > 0 {
			m.code = number(field(m.answer(), int(c.code)))
		}
		return refused
	default:
		m.notice(text)
	}
	if x.final && x.missing == 0 && x.tail == "" && (c.info == "" || x.answered) {
		return m.result(x)
	}
	return pending
}

// answer is the rest of the latest info line.
func (m *Modem) answer() []byte { return m.info[:m.infoLen] }

// result judges a complete answer.
func (m *Modem) result(x *exchange) outcome {
	c := x.c
	if c.code > 0 {
		if n := number(field(m.answer(), int(c.code))); n != 0 {
			m.code = n
			return refused
		}
	}
	if c.data != "" && !x.header {
		m.unsettled = true
		return silent // the header was damaged, and the data were taken for lines
	}
	if x.out != nil {
		x.got = len(x.out)
		if c.took > 0 {
			n := number(field(m.answer(), int(c.took)))
			if n < 0 || n > len(x.out) {
				return refused
			}
			x.got = n
		}
	}
	return done
}

// poll processes the lines that have come between answers.
func (m *Modem) poll() {
	for range maxLines {
		text := m.line.next(false)
		if text == nil {
			return
		}
		m.notice(text)
	}
}

// maxLines bounds a poll, so that a modem that talks without end does not keep its caller.
const maxLines = 16

// notice processes a line that the modem sent by itself. Unknown lines have no meaning.
func (m *Modem) notice(text []byte) {
	for i := range m.cfg.Dialect.events {
		e := &m.cfg.Dialect.events[i]
		if !begins(text, e.prefix) {
			continue
		}
		id := number(field(text[len(e.prefix):], 1))
		switch e.what {
		case received:
			if m.conn != nil && m.conn.id == id {
				m.conn.pending = true
			}
		case closed:
			if m.conn != nil && m.conn.id == id {
				m.conn.lost = true
			}
		case detached:
			m.detached()
		case restarted:
			m.restarts++
			m.forget()
		}
		return
	}
}

// detached notes that there is no data connection.
func (m *Modem) detached() {
	m.attached = false
	if m.conn != nil {
		m.conn.lost = true
	}
}
