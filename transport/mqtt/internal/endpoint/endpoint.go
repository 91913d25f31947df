// Package endpoint describes MQTT to package dialer, for every engine that runs on standard Go.
package endpoint

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
	"github.com/hubline-iot/hubline/transport/neterr"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Protocol has MQTT's name, ports and error kinds.
var Protocol = dialer.Protocol{Name: wire.Proto, Secure: "8883", Plain: "1883", Kind: kind}

// kind maps an error of the MQTT handshake to its Kind and hint; the result is false for other
// errors.
func kind(err error) (transport.Kind, string, bool) {
	if e, ok := errors.AsType[*wire.ConnackError](err); ok {
		return wire.ConnackMeaning(e.Code).Kind, "", true
	}
	if _, ok := errors.AsType[wire.Violation](err); ok {
		return transport.Protocol, wire.HintPeer, true
	}
	if u, ok := errors.AsType[wire.Unanswered](err); ok {
		if kind, hint, ok := neterr.Explain(u.Err); ok && kind == transport.Network && hint == "" {
			return kind, wire.HintUnanswered, true
		}
	}
	return 0, "", false
}

// Error returns the *transport.Error for a dial that failed. An *Error (of the token source, or of
// the user's dial function) keeps its Kind.
func Error(err error) *transport.Error { return Protocol.Error(err) }

// WebSocket returns a tunnel to a path. Package mqttws sets it when the program starts, so that
// programs link net/http only with that package.
var WebSocket func(path string) netopt.Tunnel
