// Package modems has the other ends of a board's serial line, which connect it to a hub: Line for a
// board.Modem, and for tests Modem, which speaks AT commands as the manuals of SIMCom and Quectel
// say. It shares nothing with package atmodem, so that both cannot make the same mistake.
package modems

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

// Family is a kind of modems.
type Family uint8

// The families.
const (
	SIMCom Family = iota
	Quectel
)

// Action is a fault.
type Action uint8

// The faults of one command.
const (
	Obey       Action = iota
	Refuse            // answers ERROR
	Ignore            // does not answer
	Reboot            // starts anew in place of the answer
	Garbage           // answers with bytes that mean nothing, and a line that is too long
	Distract          // sends events before the answer and after it
	Interrupt         // sends events between the lines of the answer
	Die               // does not answer anything until the power is switched
	CutOff            // answers the beginning only
	Twice             // answers twice
	Babble            // answers, and talks nonsense without end for 10 s
	HangUp            // ends the connection first
	Detach            // ends the data connection first
	HideAnswer        // obeys, and the answer is lost
)

// Config describes a modem. Set it before Serve.
type Config struct {
	Family Family
	Line   net.Conn
	Dial   func(ctx context.Context, network, addr string) (net.Conn, error)
	Now    func() time.Time // what the network tells; nil: it does not
	Zone   int              // of the network, in quarters of an hour

	PIN    string // wanted by the SIM; empty: none
	Tries  int    // the PIN has left; default 3
	NoSIM  bool
	APN    string // the only one that the network takes; empty: all
	User   string // with Secret: the only ones that the network takes
	Secret string
	// Denied and Searching are how many questions about the network are answered so after a start.
	Denied, Searching int

	Files map[string][]byte // at the beginning

	Off  bool          // at the beginning
	Boot time.Duration // default 5 s

	// Fault returns what goes wrong with a command, the n-th from 1 on.
	Fault func(n int, command string) Action
	// LoseOut and LoseIn are numbers of bytes, from 1 on, that get lost to and from the board. Bytes
	// of payload are not lost on the way to the modem.
	LoseOut, LoseIn int
	// NoiseOut is the number of a byte, from 1 on, that noise changes on the way to the board, in the
	// bits NoiseBits. Bytes of payload are not counted.
	NoiseOut  int
	NoiseBits byte
}

// Modem is an emulated modem.
type Modem struct {
	cfg Config
	in  *bufio.Reader

	readers sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	on       bool
	dead     bool
	muted    bool // what it sends is lost
	events   bool // follow each line
	pressed  time.Time
	start    int // number of starts: what belongs to an earlier one has no effect
	booted   bool
	commands []string
	n        int
	outs     int
	framing  int // of outs, those outside of payloads
	ins      int
	echo     bool
	radio    bool
	unlocked bool
	asked    int // about the network
	attached bool
	manual   bool // data wait until they are read
	apn      string
	user     string
	secret   string
	sockets  map[int]*socket
	tls      map[string]string // settings
	files    map[string][]byte
	dials    int
	pins     int
}

// socket is an open connection.
type socket struct {
	conn   net.Conn
	data   []byte
	told   bool // that there is data
	closed bool
}

// New returns a modem; Serve runs it.
func New(c Config) *Modem {
	if c.Tries == 0 {
		c.Tries = 3
	}
	if c.Boot == 0 {
		c.Boot = 5 * time.Second
	}
	m := &Modem{cfg: c, in: bufio.NewReader(c.Line), files: map[string][]byte{}}
	maps.Copy(m.files, c.Files)
	m.mu.Lock()
	m.resetLocked()
	m.on = !c.Off
	m.booted = m.on
	m.mu.Unlock()
	return m
}

// resetLocked forgets what a modem without power forgets.
func (m *Modem) resetLocked() {
	for _, s := range m.sockets {
		s.conn.Close()
	}
	m.start++
	m.dead, m.booted, m.echo, m.radio, m.unlocked, m.attached, m.manual = false, false, true, true, false, false, false
	m.asked, m.apn, m.user, m.secret = 0, "", "", ""
	m.sockets, m.tls = map[int]*socket{}, map[string]string{}
}

// Commands returns the commands that came so far.
func (m *Modem) Commands() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.commands)
}

// Bytes returns how many bytes went to the board, and came from it outside of payloads.
func (m *Modem) Bytes() (out, in int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.outs, m.ins
}

// Framing returns how many bytes went to the board outside of payloads.
func (m *Modem) Framing() int { return m.count(&m.framing) }

// Dials returns how many connections were asked for.
func (m *Modem) Dials() int { return m.count(&m.dials) }

// PINs returns how many PINs the SIM was given.
func (m *Modem) PINs() int { return m.count(&m.pins) }

// Starts returns how often the modem started or lost its power.
func (m *Modem) Starts() int { return m.count(&m.start) }

func (m *Modem) count(n *int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *n
}

// Drop ends all connections, as the network does.
func (m *Modem) Drop() {
	m.mu.Lock()
	for id, s := range m.sockets {
		m.hangUpLocked(id, s)
	}
	m.mu.Unlock()
}

// Cut switches the modem off and on.
func (m *Modem) Cut() {
	m.mu.Lock()
	m.on = true
	m.boot()
	m.mu.Unlock()
}

// Kill makes the modem hang until its power is switched.
func (m *Modem) Kill() {
	m.mu.Lock()
	m.dead = true
	m.mu.Unlock()
}

// boot starts the modem; mu held.
func (m *Modem) boot() {
	m.resetLocked()
	start := m.start
	m.readers.Go(func() { // ends after the time of a start
		time.Sleep(m.cfg.Boot)
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.start != start || !m.on {
			return
		}
		m.booted = true
		m.sendLocked("\xff\x00\r\nRDY\r\n\r\n+CFUN: 1\r\n\r\n+CPIN: READY\r\n")
	})
}

// Key is the modem's PWRKEY: half a second switches it on, two and a half switch it off.
func (m *Modem) Key(pressed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pressed {
		m.pressed = time.Now()
		return
	}
	held := time.Since(m.pressed)
	longest := 2500 * time.Millisecond
	if m.cfg.Family == Quectel {
		longest = 650 * time.Millisecond
	}
	switch {
	case m.on && held >= longest:
		m.sendLocked("\r\nNORMAL POWER DOWN\r\n")
		m.resetLocked()
		m.on = false
	case !m.on && held >= 500*time.Millisecond:
		m.on = true
		m.boot()
	}
}

// Serve executes the board's commands until the line is closed, and returns why.
func (m *Modem) Serve() error {
	defer m.readers.Wait()
	defer func() {
		m.mu.Lock()
		m.resetLocked()
		m.on = false
		m.mu.Unlock()
	}()
	var text []byte
	for {
		b, err := m.in.ReadByte()
		if err != nil {
			return err
		}
		m.mu.Lock()
		m.ins++
		lost := m.ins == m.cfg.LoseIn
		awake := m.on && m.booted && !m.dead
		if awake && m.echo && !lost {
			m.sendLocked(string(b))
		}
		m.mu.Unlock()
		switch {
		case lost:
		case !awake:
			text = text[:0]
		case b == '\r':
			command := string(text)
			text = text[:0]
			m.execute(command)
		case b >= ' ' && len(text) < 400:
			text = append(text, b)
		}
	}
}

// sendLocked sends a line or more to the board.
func (m *Modem) sendLocked(text string) {
	first := m.framing + 1
	m.framing += len(text)
	if noise := m.cfg.NoiseOut; first <= noise && noise <= m.framing {
		b := []byte(text)
		b[noise-first] ^= m.cfg.NoiseBits
		text = string(b)
	}
	m.putLocked(text)
	if m.events {
		m.putLocked(interruption)
	}
}

// interruption are events that change nothing for the board, or make it ask in vain.
const interruption = "\r\n+QIURC: \"recv\",11\r\n\r\n+CREG: 1\r\n\r\n+CEREG: 2\r\n\r\n+CPIN: READY\r\n" +
	"\r\n+CCHEVENT: 0,RECV EVENT\r\n\r\n+IPCLOSE: 9,1\r\n\r\n+QSSLURC: \"closed\",11\r\n\r\nRING\r\n"

// putLocked puts bytes on the line.
func (m *Modem) putLocked(text string) {
	if m.dead || m.muted {
		return
	}
	first, last := m.outs+1, m.outs+len(text)
	m.outs = last
	if lost := m.cfg.LoseOut; first <= lost && lost <= last {
		text = text[:lost-first] + text[lost-first+1:]
	}
	_, _ = m.cfg.Line.Write([]byte(text))
}

func (m *Modem) send(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sendLocked(text)
}

// answer sends lines, each with its ends.
func (m *Modem) answer(lines ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answerLocked(lines...)
}

func (m *Modem) answerLocked(lines ...string) {
	for _, l := range lines {
		m.sendLocked("\r\n" + l + "\r\n")
	}
}

// Say sends a line that nobody asked for.
func (m *Modem) Say(line string) { m.answer(line) }

// payload reads n bytes after a prompt, unless the modem starts anew.
func (m *Modem) payload(n int) ([]byte, error) {
	start := m.Starts()
	p := make([]byte, n)
	for i := range p {
		b, err := m.in.ReadByte()
		if err != nil {
			return nil, err
		}
		if m.Starts() != start {
			return nil, errors.New("the modem has started anew")
		}
		p[i] = b
	}
	return p, nil
}

// execute obeys a command, or does what the fault says.
func (m *Modem) execute(command string) {
	if !strings.HasPrefix(command, "AT") {
		return // such as an empty line
	}
	m.mu.Lock()
	m.n++
	n := m.n
	m.commands = append(m.commands, command)
	m.mu.Unlock()
	action := Obey
	if m.cfg.Fault != nil {
		action = m.cfg.Fault(n, command)
	}
	switch action {
	case Obey:
		m.obey(command[2:])
	case Refuse:
		m.answer("ERROR")
	case Ignore:
	case Reboot:
		m.Cut()
	case Garbage:
		m.send("\r\n\x80\xfe>>\r\r\n" + strings.Repeat("+CIPRXGET: ", 40) + "\r\n\n\n")
		m.obey(command[2:])
	case Distract:
		m.answer(`+QIURC: "recv",11`, "+CREG: 1", `+QSSLURC: "closed",11`, "+CCHEVENT: 9,RECV EVENT", "RING")
		m.obey(command[2:])
		m.answer("+IPCLOSE: 9,1", "SMS DONE")
	case Interrupt:
		m.interrupt(true)
		m.obey(command[2:])
		m.interrupt(false)
	case Die:
		m.Kill()
	case CutOff:
		m.send("\r\n+C")
	case Twice:
		m.obey(command[2:])
		m.answer("OK")
	case Babble:
		m.obey(command[2:])
		m.readers.Go(func() { // ends after 10 s
			for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				m.send("?")
			}
			m.send("\r\n")
		})
	case HideAnswer:
		m.mute(true)
		m.obey(command[2:])
		m.mute(false)
	case HangUp:
		m.Drop()
		m.obey(command[2:])
	case Detach:
		m.Detach()
		m.obey(command[2:])
	}
}

func (m *Modem) mute(on bool) {
	m.mu.Lock()
	m.muted = on
	m.mu.Unlock()
}

func (m *Modem) interrupt(on bool) {
	m.mu.Lock()
	m.events = on
	m.mu.Unlock()
}

// Detach ends the data connection, as the network does.
func (m *Modem) Detach() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, s := range m.sockets {
		s.conn.Close()
		delete(m.sockets, id)
	}
	m.attached = false
	if m.cfg.Family == Quectel {
		m.sendLocked("\r\n+QIURC: \"pdpdeact\",1\r\n")
	} else {
		m.sendLocked("\r\n+CIPEVENT: NETWORK CLOSED UNEXPECTEDLY\r\n\r\n+CCH: CCH STOP\r\n")
	}
}

// list splits the arguments of a command, without quotation marks.
func list(text string) []string {
	parts := strings.Split(text, ",")
	for i, p := range parts {
		parts[i] = strings.Trim(p, `"`)
	}
	return parts
}

// number is the value of an argument, -1 if it is none.
func number(args []string, i int) int {
	n := -1
	if i < len(args) {
		if _, err := fmt.Sscanf(args[i], "%d", &n); err != nil {
			return -1
		}
	}
	return n
}
