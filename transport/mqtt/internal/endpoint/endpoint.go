// Package endpoint tells package dialer about MQTT, for every engine that runs on standard Go.
package endpoint

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
)

// Protocol is MQTT.
var Protocol = dialer.Protocol{Name: wire.Proto, Secure: "8883", Plain: "1883", Kind: kind}

// kind is what a failed handshake of MQTT means.
func kind(err error) (transport.Kind, string, bool) {
	if e, ok := errors.AsType[*wire.ConnackError](err); ok {
		return wire.ConnackMeaning(e.Code).Kind, "", true
	}
	if _, ok := errors.AsType[wire.Violation](err); ok {
		return transport.Protocol, wire.HintPeer, true
	}
	return 0, "", false
}

// Error is the *transport.Error for a dial that failed. An *Error (of the token source, or of a
// user's own dial function) keeps its Kind.
func Error(err error) *transport.Error { return Protocol.Error(err) }
