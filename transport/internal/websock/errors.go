package websock

import (
	"net/http"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/retryafter"
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

// statusTable is what an answer to the upgrade means, by its status.
var statusTable = map[int]transport.Kind{
	http.StatusBadRequest:                 transport.Protocol,
	http.StatusUnauthorized:               transport.Unauthorized,
	http.StatusPaymentRequired:            transport.Forbidden,
	http.StatusForbidden:                  transport.Forbidden,
	http.StatusNotFound:                   transport.NotFound,
	http.StatusMethodNotAllowed:           transport.Protocol,
	http.StatusNotAcceptable:              transport.Protocol,
	http.StatusProxyAuthRequired:          transport.Unauthorized,
	http.StatusRequestTimeout:             transport.Timeout,
	http.StatusGone:                       transport.NotFound,
	http.StatusUpgradeRequired:            transport.Unsupported,
	http.StatusTooManyRequests:            transport.Throttled,
	http.StatusUnavailableForLegalReasons: transport.Forbidden,
	http.StatusInternalServerError:        transport.Unavailable,
	http.StatusNotImplemented:             transport.Unsupported,
	http.StatusBadGateway:                 transport.Unavailable,
	http.StatusServiceUnavailable:         transport.Unavailable,
	http.StatusGatewayTimeout:             transport.Unavailable,
	http.StatusHTTPVersionNotSupported:    transport.Unsupported,
}

// kindOf is total: statuses that are not listed go by their class.
func kindOf(status int) transport.Kind {
	if kind, ok := statusTable[status]; ok {
		return kind
	}
	switch {
	case status < 400: // no refusal, but no WebSocket either
		return transport.Protocol
	case status < 500:
		return transport.Unknown
	}
	return transport.Unavailable
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
