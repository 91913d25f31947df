package http

import (
	"time"

	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

const proto = "http"

// protocol parameterizes the dialer and its errors.
var protocol = &hubhttp.Protocol

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
	hubhttp.Verdict
	after time.Duration
	cause *transport.StatusError
}

// operation returns the error for one message or request.
func (r *refusal) operation(op transport.Op) *transport.Error {
	return &transport.Error{Kind: r.Kind, Op: op, Proto: proto, RetryAfter: r.after, Err: r.cause}
}

// connection returns the error that ends a session or a dial.
func (r *refusal) connection(op transport.Op) *transport.Error {
	return &transport.Error{Kind: r.Kind, Scope: transport.ScopeConnection, Op: op, Proto: proto, RetryAfter: r.after,
		Err: r.cause}
}

// refusalOf returns the meaning of an unsuccessful answer, nil for a success: the acknowledgement,
// or the message that a poll asks for.
func refusalOf(a *hubhttp.Answer, poll bool, now time.Time) *refusal {
	if hubhttp.IsFine(a.Status) || poll && isMessage(a) {
		return nil
	}
	cause, verdict := hubhttp.ReadAnswer(a.Status, a.Header, a.Body)
	about := verdict.About == statuscode.Message && verdict.Kind != transport.TooLarge // it would end a message
	if (about || verdict.Kind == transport.NotFound) && !isWorded(cause) {
		verdict = hubhttp.NoHub
		cause.Service, cause.Meaning = "peer", verdict.Reason
	}
	r := &refusal{Verdict: verdict, cause: cause}
	r.after, _ = times.RetryAfterHeaders(a.Header.Get, now)
	return r
}

// isWorded reports whether a refusal has anything of a hub besides its status: a name, a code or a
// tracking id. A proxy on the way has none of them. A text is not enough: gateways of other APIs
// answer with a "message" too.
func isWorded(e *transport.StatusError) bool {
	return e.Name != "" || e.Code != 0 || e.TrackingID != ""
}
