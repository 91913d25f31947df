package atmodem

import (
	"errors"
	"strconv"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/transport"
)

// proto is the protocol that errors name.
const proto = "modem"

func fault(k transport.Kind, cause error) error {
	return &transport.Error{Kind: k, Scope: transport.ScopeConnection, Op: transport.OpDial, Proto: proto, Err: cause}
}

// Errors of a dial.
var (
	errNoAnswer = fault(transport.Timeout, errors.New("the modem does not answer; check power, line and baud rate"))
	errRebooted = fault(transport.Network, errors.New("the modem has restarted"))
	errNoSIM    = fault(transport.NotFound, errors.New("the modem has no SIM; insert one"))
	errSIMBusy  = fault(transport.Unavailable, errors.New("the SIM is not ready"))
	errNoPIN    = fault(transport.Unauthorized, errors.New("the SIM wants a PIN; give Config.PIN"))
	errPIN      = fault(transport.Unauthorized,
		errors.New("the SIM did not take Config.PIN; it is not tried again, because three wrong ones lock the SIM"))
	errTries = fault(transport.Unauthorized, errors.New("the SIM has not all three tries for its PIN left; "+
		"Config.PIN is not tried: unlock the SIM in a telephone"))
	errPUK      = fault(transport.Forbidden, errors.New("the SIM is locked and wants a PUK; unlock it in a telephone"))
	errDenied   = fault(transport.Forbidden, errors.New("the network denies the SIM; check contract and roaming"))
	errNoSignal = fault(transport.Network, errors.New("no network was found yet; check antenna and coverage"))
	errClock    = fault(transport.ClockUnset,
		errors.New("the network has not told the time, and certificates cannot be verified without"))
	errHost = fault(transport.Invalid, errors.New("the host's name is empty or has bytes that no name has"))
)

// Errors of a connection.
var (
	errHungUp  = errors.New("the connection was hung up")
	errLost    = errors.New("the modem lost the connection")
	errTimeout = timeoutError{"nothing came in time"}
	errNoTake  = timeoutError{"the modem took nothing in time"}
)

type timeoutError struct{ text string }

func (e timeoutError) Error() string { return e.text }
func (timeoutError) Timeout() bool   { return true }

// damaged is the cause of a failed TLS handshake: modems do not tell why.
type damaged struct{ text string }

func (d damaged) Error() string { return d.text }
func (damaged) Unwrap() error   { return transport.ErrMaybeDamaged }

// errorOf returns the error for a command that did not succeed. It names the command without what
// follows its name, which may be a secret.
func (m *Modem) errorOf(s stopper, c *command, o outcome) error {
	switch o {
	case rebooted:
		return errRebooted
	case abandoned:
		return abandonment(s)
	case refused, full:
	default:
		return fault(transport.Timeout, errors.New("no answer to AT"+nameOf(c)))
	}
	kind := c.kind
	if kind == transport.Unknown {
		kind = transport.Network
	}
	text := "the modem refused AT" + nameOf(c)
	if m.code >= 0 {
		text += " with error " + strconv.Itoa(m.code)
	}
	if h := m.service().handshake; h != 0 && m.code == h && c == &m.service().open {
		return fault(transport.Untrusted, damaged{text + ": the TLS handshake failed; check the CA file, " +
			"the modem's clock and Host"})
	}
	return fault(kind, errors.New(text+hints[c.hint]))
}

// nameOf returns a command's name.
func nameOf(c *command) string {
	for i := range len(c.text) {
		switch c.text[i] {
		case '=', '?':
			return c.text[:i]
		}
	}
	return c.text
}

// abandonment returns the error of a caller that gave up.
func abandonment(s stopper) error {
	if c, ok := s.(byContext); ok {
		return lifetime.Cause(c.ctx)
	}
	return errTimeout
}
