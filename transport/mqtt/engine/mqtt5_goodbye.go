package engine

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/mqttwire"
)

// Reason codes of the DISCONNECT that ends a connection for a violation: sections 3.14.2.1, 4.13.1.
const (
	codeMalformed = 0x81
	codeProtocol  = 0x82
	codeReceive   = 0x93
	codeAlias     = 0x94
	codeTooLarge  = 0x95
)

// violation returns the violation with a reason code other than codeProtocol.
func violation(code byte, text string) error {
	return mqttwire.Violation{Err: errors.New(text), Code: code}
}

// goodbye tells the broker's operator why the connection ends, behind the answers that wait.
func (v *five) goodbye(s *session, err error) (packets []byte) {
	code := byte(0)
	broken, ok := err.(mqttwire.Violation)
	switch {
	case ok:
		code = codeOf(broken)
	case !errors.Is(err, mqttwire.ErrBehind) && !errors.Is(err, errAllReleased):
		return nil
	default:
		s.mu.Lock()
		if v.exceeded {
			code = codeReceive
		}
		packets, v.control = v.control, nil
		s.mu.Unlock()
	}
	packets, _ = mqttwire.AppendReason(packets, mqttwire.Disconnect, code, nil)
	return packets
}

// codeOf returns the reason code for a violation. An error of the codec is about a malformed
// packet, unless the packet is well-formed and forbidden.
func codeOf(v mqttwire.Violation) byte {
	if v.Code != 0 {
		return v.Code
	}
	switch e, ok := v.Err.(mqttwire.Error); {
	case !ok, e == mqttwire.ErrTwice, e == mqttwire.ErrMethod, e == mqttwire.ErrRange, e == mqttwire.ErrTopic:
		return codeProtocol
	}
	return codeMalformed
}
