package websock

import (
	"net/http"
	"time"

	"github.com/hubline-iot/hubline/internal/retryafter"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// kindOf returns what an answer to the upgrade means by its status.
func kindOf(status int) transport.Kind {
	m := statuscode.Of(status, statuscode.Upgrade)
	if m.About == statuscode.Fine {
		return transport.Protocol // no refusal, but no WebSocket either
	}
	return m.Kind
}

// refusal is the error for an answer.
func refusal(answer *http.Response) *transport.Error {
	status := answer.StatusCode
	e := failed(kindOf(status), &transport.StatusError{Service: "WebSocket server", Status: status,
		Meaning: http.StatusText(status)})
	e.RetryAfter, _ = retryafter.Headers(answer.Header.Get, time.Now())
	return e
}

// handshakeError says when it happened.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "WebSocket handshake: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// failed is for the engine, which fills in the rest.
func failed(kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Scope: transport.Connection, Err: cause}
}
