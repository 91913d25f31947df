package atmodem

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/cross/arm/board"
)

// Config describes a modem and its network.
type Config struct {
	// Port is the serial line. The modem's baud rate must be set, and should not be automatic.
	Port board.Port
	// Dialect is SIM7x00 or BG9x.
	Dialect *Dialect

	// Host is the hub's name; DialTo has another one. TCPPort is 8883 by default, with Plain 1883.
	Host    string
	TCPPort uint16

	// APN is the name of the operator's access point, User and Password are its credentials, if it
	// wants any. They are sent as PAP unless CHAP is set. Default: the network's own APN.
	APN, User, Password string
	CHAP                bool
	// PIN unlocks the SIM, if it is locked. It is tried only while the SIM has all three tries left,
	// and once: three wrong ones lock the SIM.
	PIN string

	// CA is the name of the file in the modem with the certificate that verifies the hub's. WriteCA
	// writes it.
	CA string
	// AnyName accepts a certificate of any name that the CA signed. It must be set for SIM7x00, which
	// do not compare names; use a CA that signs no foreign servers.
	AnyName bool
	// Plain connects without TLS, to a gateway in a private network.
	Plain bool

	// PowerKey presses and releases the modem's PWRKEY. The times are the dialect's. PowerCycle
	// restarts the modem in another way, such as a switch in its supply; it may block for some
	// seconds. Give one of them; without, a modem that hangs is not restarted.
	PowerKey   func(pressed bool)
	PowerCycle func(ctx context.Context)
}

// Modem is one modem. Its methods may be used by several goroutines. It has one connection at a
// time.
type Modem struct {
	cfg   Config
	clock board.Clock

	busy     chan struct{} // holds a value while a goroutine uses the line, which owns all fields below
	line     line
	args     args
	text     [maxCommand]byte
	info     [lineSize]byte // the latest answer's content
	infoLen  int
	code     int // number of the latest refusal; -1: none
	restarts int

	ready     bool // the modem answers, has its settings and a SIM that is not locked
	attached  bool // the data connection is up
	clockSeen bool // the modem's clock is set
	unsettled bool // an answer may be outstanding
	torn      bool // the modem may wait for payload
	conn      *conn
	openID    int // of a socket that may be open; -1: none
	nextID    int

	failures int // dials that failed in a row, weighed
	due      rung
	search   time.Time // when the search for a network began
	denied   time.Time // when the network first refused the SIM
	pin      pinState
	phase    int       // of a power cycle
	until    time.Time // end of the phase, or of the modem's start
}

// args are the values of placeholders that change.
type args struct {
	id, length int
	host       string
}

// pinState says what is known of Config.PIN.
type pinState uint8

const (
	pinUntried pinState = iota
	pinTried            // never again, unless it proves right
	pinRight
)

const (
	tlsPort   = 8883
	plainPort = 1883
	// maxText is the length of the longest text of Config, so that commands fit into their buffer.
	maxText = 100
)

// New checks c, and allocates all memory. The error names the wrong field. It does not talk to the
// modem.
func New(c Config) (*Modem, error) {
	if c.TCPPort == 0 {
		c.TCPPort = tlsPort
		if c.Plain {
			c.TCPPort = plainPort
		}
	}
	switch {
	case c.Port == nil:
		return nil, errors.New("atmodem: Port is nil; give the serial line")
	case c.Dialect == nil:
		return nil, errors.New("atmodem: Dialect is nil; give SIM7x00 or BG9x")
	case c.Host != "" && !isHost(c.Host):
		return nil, errors.New("atmodem: Host is not a host's name; give it without scheme and port")
	case !c.Plain && c.CA == "":
		return nil, errors.New("atmodem: CA is empty; give the name of the file that WriteCA writes")
	case !c.Plain && !c.AnyName && !c.Dialect.checksName:
		return nil, errors.New("atmodem: AnyName is false, but these modems do not compare the certificate's name; " +
			"use a CA that signs no foreign servers, and set AnyName")
	case c.User == "" && c.Password != "":
		return nil, errors.New("atmodem: Password is set without User; give both")
	case c.PowerKey != nil && c.PowerCycle != nil:
		return nil, errors.New("atmodem: PowerKey and PowerCycle are set; give one")
	case c.PIN != "" && !isPIN(c.PIN):
		return nil, errors.New("atmodem: PIN is not 4 to 8 digits")
	}
	for _, f := range [...]struct{ name, text string }{{"APN", c.APN}, {"User", c.User}, {"Password", c.Password},
		{"CA", c.CA}} {
		if !isText(f.text) {
			return nil, errors.New("atmodem: " + f.name + " has quotation marks, or is not ASCII, or has above 100 bytes")
		}
	}
	m := &Modem{cfg: c, busy: make(chan struct{}, 1), openID: -1, code: -1}
	m.line.port = c.Port
	return m, nil
}

// Now returns the network's time, advanced by the board's own clock. Before SetClock or a Dial it
// is the board's own clock, shortly after the beginning of 1970.
func (m *Modem) Now() time.Time { return m.clock.Now() }

// service returns the commands for sockets, with TLS or without.
func (m *Modem) service() *service {
	if m.cfg.Plain {
		return &m.cfg.Dialect.plain
	}
	return &m.cfg.Dialect.secure
}

// isHost reports whether s can be a host's name. It goes into a command, and may come from a
// provisioning service.
func isHost(s string) bool {
	if s == "" || len(s) > maxText {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}

// isText reports whether s can stand between quotation marks.
func isText(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return len(s) <= maxText
}

func isPIN(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return 4 <= len(s) && len(s) <= 8
}
