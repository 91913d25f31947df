package websocket

import (
	"net/http"
	"time"

	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// refusal returns the error for a refused upgrade.
func refusal(answer *http.Response) *transport.Error {
	status := answer.StatusCode
	meant, text := statuscode.Of(status, statuscode.Upgrade), http.StatusText(status)
	if hubhttp.IsPage(answer.Header) {
		text += ", a web page: a captive portal or a proxy may have answered in place of the service"
		if meant.About == statuscode.Identity {
			meant.Kind = transport.Protocol
		}
	}
	e := failed(meant.Kind, &transport.StatusError{Service: "WebSocket server", Status: status, Meaning: text})
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
