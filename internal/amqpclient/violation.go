package amqpclient

import (
	"fmt"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

// Violation is refused input of the peer. It ends the connection, unless it is confined to a
// message; see Incoming.
type Violation struct {
	fault fault
	// path names the place of the fault: "frame", "message", "link", "session" or a performative, with
	// a field of it: "attach.source.filter".
	path string
	// problem continues a sentence whose subject is path: "has a wrong type". Bytes of the peer in it
	// are scrubbed.
	problem string
	// BeforeOpen: the peer had not opened the connection.
	BeforeOpen bool
	// Condition is that of the outcome of a message; empty: amqp:decode-error.
	Condition wire.Symbol
}

// fault is the class of a violation.
type fault uint8

const (
	faultProtocol    fault = iota // it breaks the protocol
	faultEncoding                 // it cannot be decoded
	faultUnsupported              // it is legal, but not supported
)

// broken returns a violation of the protocol.
func broken(path, format string, args ...any) *Violation {
	return &Violation{path: path, problem: fmt.Sprintf(format, args...)}
}

// unsupported returns the violation for legal input that is not supported.
func unsupported(path, format string, args ...any) *Violation {
	return &Violation{fault: faultUnsupported, path: path, problem: fmt.Sprintf(format, args...)}
}

// undecodable returns the violation for an error of a wire.Walker.
func undecodable(path string, err error) *Violation {
	problem := err.Error()
	if e, ok := err.(*wire.Error); ok {
		problem = e.Description
	}
	return &Violation{fault: faultEncoding, path: path, problem: problem}
}

// BrokenHandshake returns the violation for a peer that breaks a SASL dialogue.
func BrokenHandshake(problem string) *Violation {
	return &Violation{path: "SASL:", problem: problem, BeforeOpen: true}
}

// ErrNoStatus is an answer to a token that neither takes nor refuses it.
var ErrNoStatus = operr.Violation("the hub's answer to the token has no status-code that is a number")

// within prepends outer to the path of v.
func (v *Violation) within(outer string) *Violation {
	v.path = outer + "." + v.path
	return v
}

func (v *Violation) Error() string {
	switch v.fault {
	case faultEncoding:
		return "undecodable AMQP from the peer: " + v.path + ": " + v.problem
	case faultUnsupported:
		return "unsupported AMQP from the peer: " + v.path + " " + v.problem
	case faultProtocol:
	}
	return "AMQP protocol violation by the peer: " + v.path + " " + v.problem
}

// Unwrap returns the cause that makes a violation after the open of the connection retryable.
func (v *Violation) Unwrap() error {
	if v.BeforeOpen {
		return nil
	}
	return transport.ErrViolation
}

// during records whether the connection was not open yet.
func (v *Violation) during(handshake bool) *Violation {
	v.BeforeOpen = handshake
	return v
}
