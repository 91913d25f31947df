package websocket

import (
	"net/http"
	"time"

	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// kindOf returns the Kind of an answer to the upgrade.
func kindOf(status int) transport.Kind {
	m := statuscode.Of(status, statuscode.Upgrade)
	if m.About == statuscode.Fine {
		return transport.Protocol // a success without WebSocket
	}
	return m.Kind
}

// refusal returns the error for a refused upgrade.
func refusal(answer *http.Response) *transport.Error {
	status := answer.StatusCode
	e := failed(kindOf(status), &transport.StatusError{Service: "WebSocket server", Status: status,
		Meaning: http.StatusText(status)})
	e.RetryAfter, _ = times.RetryAfterHeaders(answer.Header.Get, time.Now())
	return e
}

// handshakeError marks an error as one of the handshake.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "WebSocket handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// failed returns an error whose Op and Proto the transport fills in.
func failed(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Err: cause}
}
