package websock

import (
	"net/http"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/retryafter"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// StatusError is a server's answer other than the upgrade to WebSocket: the cause of the
// *transport.Error of a failed dial, reachable with errors.As.
type StatusError struct {
	// Code is the HTTP status, such as 404.
	Code int
}

// Error gives the status and its meaning.
func (e *StatusError) Error() string {
	text := "HTTP " + strconv.Itoa(e.Code)
	if meaning := http.StatusText(e.Code); meaning != "" {
		text += " (" + meaning + ")"
	}
	return text + " in place of WebSocket"
}

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
	e := failed(kindOf(answer.StatusCode), &StatusError{answer.StatusCode})
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
