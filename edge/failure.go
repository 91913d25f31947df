package edge

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/neterr"
)

// statuses are the meanings of the daemon's refusals. The first matching row counts.
var statuses = []struct {
	from, to int // of the status
	kind     transport.Kind
	hint     string
}{
	{400, 400, transport.Invalid, "the daemon may not know this version of its API; check " + varVersion},
	// The daemon recognizes a module by its process, from a list that it fills while it starts. The
	// generation is another one when the module is created anew, which ends this process.
	{401, 401, transport.Unavailable, unknownModule},
	{403, 403, transport.Unavailable, unknownModule},
	{404, 404, transport.Unavailable, unknownModule},
	{408, 408, transport.Timeout, ""},
	{429, 429, transport.Throttled, ""},
	{500, 599, transport.Unavailable, ""},
	{100, 999, transport.Protocol, "this is not the workload API; check " + varWorkload},
}

const unknownModule = "the daemon does not know this process as the module: it may be starting, or creating the " +
	"module anew"

// statusError returns the error for an answer with a status other than 200.
func statusError(got *answer) *transport.Error {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.Unmarshal(got.body, &said) // there may be no body
	refusal := &transport.StatusError{Service: "daemon", Status: got.status,
		Meaning: http.StatusText(got.status), Message: scrub.Peer(said.Message)}
	e := &transport.Error{Kind: transport.Protocol, Err: refusal}
	for _, row := range statuses {
		if row.from <= got.status && got.status <= row.to {
			e.Kind, refusal.Hint = row.kind, row.hint
			break
		}
	}
	return e
}

// slowError is a call without an answer in time.
type slowError struct{ limit time.Duration }

func (e *slowError) Error() string { return "no answer within " + e.limit.String() }

// Timeout makes it a time-out for package neterr.
func (e *slowError) Timeout() bool { return true }

// Temporary is part of net.Error.
func (e *slowError) Temporary() bool { return true }

// failure returns the error of the call named what. A Kind in cause is kept.
func failure(what string, cause error) *transport.Error {
	e := &transport.Error{Kind: transport.Network}
	known, _ := neterr.Kind(cause)
	given := transport.Find(cause)
	switch kind := transport.KindOf(cause); {
	case given != nil:
		*e = *given
		if own, _ := cause.(*transport.Error); own == given && given.Err != nil {
			cause = given.Err
		}
	case kind != transport.Unknown:
		e.Kind = kind
	case errors.Is(cause, transport.ErrViolation):
		e.Kind = transport.Protocol
	case known == transport.Timeout:
		e.Kind = transport.Timeout
	}
	e.Scope, e.Op, e.Err = transport.ScopeConnection, transport.OpDial, &callError{what, scrub.Cause(cause)}
	return e
}

// callError names the call that failed.
type callError struct {
	what  string
	cause error
}

func (e *callError) Error() string { return "workload API, " + e.what + ": " + e.cause.Error() }
func (e *callError) Unwrap() error { return e.cause }
