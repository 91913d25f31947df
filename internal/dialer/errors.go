package dialer

import (
	"context"
	"errors"
	"strings"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/neterr"
)

// Error returns the *transport.Error for a failed dial. An *Error from the token source or from a
// caller's Dial keeps its Kind.
func (p *Protocol) Error(err error) *transport.Error {
	if e := transport.Find(err); e != nil {
		kept := *e
		kept.Scope, kept.Op, kept.Proto, kept.Err = transport.ScopeConnection, transport.OpDial, p.Name, scrub.Cause(kept.Err)
		return &kept
	}
	kind, hint := p.dialKind(err)
	if hint != "" {
		err = &hintError{err, hint}
	}
	cause := scrub.Cause(err)
	if neterr.MayBeDamage(err) {
		cause = DamagedError{cause}
	}
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Op: transport.OpDial, Proto: p.Name, Err: cause}
}

// Invalid returns the error of a dial with wrong options or credentials. Inlined, it would take
// 2 KB more of a program for ARM.
//
//go:noinline
func (p *Protocol) Invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Scope: transport.ScopeConnection, Op: transport.OpDial, Proto: p.Name,
		Err: errors.New(text)}
}

// hintError appends a hint to the text of a cause.
type hintError struct {
	error
	hint string
}

func (e *hintError) Error() string { return e.error.Error() + e.hint }
func (e *hintError) Unwrap() error { return e.error }

// DamagedError adds transport.ErrMaybeDamaged to the chain of a cause, without changing its text.
type DamagedError struct{ Cause error }

func (e DamagedError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause and transport.ErrMaybeDamaged.
func (e DamagedError) Unwrap() []error { return []error{e.Cause, transport.ErrMaybeDamaged} }

func (p *Protocol) dialKind(err error) (transport.Kind, string) {
	if kind, hint, ok := p.Kind(err); ok {
		return kind, hint
	}
	if hint := firstHint(err); hint != "" {
		return transport.Network, hint
	}
	if kind, hint, ok := neterr.Explain(err); ok {
		if kind == transport.Network && hint == "" && InHandshake(err) {
			hint = "; this port may speak plain " + strings.ToUpper(p.Name) + " or another protocol: check port and scheme"
		}
		return kind, hint
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return transport.Timeout, ""
	}
	return transport.Network, "" // a dial that fails for an unknown reason may be retried
}
