package http

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/internal/hubstatus"
	"github.com/hubline-iot/hubline/internal/retryafter"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

const proto = "http"

// protocol parameterizes the dialer and its errors.
var protocol = dialer.Protocol{Name: proto, Secure: "443", Plain: "80", HTTP: true, Kind: protocolKind}

// Texts of net/http errors that have no type. A test fails when they change.
const (
	malformed   = "malformed HTTP"
	longHeaders = "response headers exceeded"
)

// protocolKind classifies the error of a failed exchange while dialing, for dialer.Protocol.
func protocolKind(err error) (kind transport.Kind, hint string, known bool) {
	if e, is := errors.AsType[*transport.StatusError](err); is {
		return hubstatus.Of(e).Kind, "", true
	}
	if text := err.Error(); errors.Is(err, httpguard.ErrUnsolicited) || strings.Contains(text, malformed) ||
		strings.Contains(text, longHeaders) {
		return transport.Protocol, "; check host and port", true
	}
	return 0, "", false
}

// failed returns the error of one operation.
func failed(op transport.Op, kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Op: op, Proto: proto, Err: scrub.Cause(cause)}
}

// lost returns the error that ends a live session. Its Kind is Network or Timeout, unless the cause
// carries a more specific one (from the hub, the token source or TLS).
func lost(cause error) *transport.Error {
	e := protocol.Error(cause)
	if e.Kind == transport.Protocol && transport.Find(cause) == nil {
		e.Kind = transport.Network // the peer spoke HTTP before, so the data was damaged
	}
	e.Op = transport.OpRun
	return e
}

// refusal is an unsuccessful answer of the hub.
type refusal struct {
	hubstatus.Verdict
	after time.Duration
	cause *transport.StatusError
}

// operation returns the error for one message or request.
func (r *refusal) operation(op transport.Op) *transport.Error {
	return &transport.Error{Kind: r.Kind, Op: op, Proto: proto, RetryAfter: r.after, Err: r.cause}
}

// connection returns the error that ends a session or a dial.
func (r *refusal) connection(op transport.Op) *transport.Error {
	return &transport.Error{Kind: r.Kind, Scope: transport.Connection, Op: op, Proto: proto, RetryAfter: r.after,
		Err: r.cause}
}

// refusalOf returns the meaning of an unsuccessful answer, nil for a success.
func refusalOf(status int, header http.Header, body []byte, now time.Time) *refusal {
	if hubstatus.IsFine(status) {
		return nil
	}
	answer := hubstatus.Read(status, header, body)
	r := &refusal{Verdict: hubstatus.Of(answer), cause: answer}
	r.after, _ = retryafter.Headers(header.Get, now)
	return r
}
