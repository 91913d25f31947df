package retrypolicy

import (
	"context"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// Classify judges an error for Do: whether it is retried, and its Kind. It applies these rules in
// order:
//
//  1. An error marked by Permanent fails.
//  2. An error with a transport.Kind is judged by package errfilter, with the field RetryAfter of a
//     *transport.Error. It fails if it wraps the end of the caller's context.
//  3. A context error fails, bare or wrapped by %w, and so does the *Error of a Do that its context
//     ended. Exception: another error whose method Timeout returns true is a Timeout, even if it
//     wraps a context error. So the *url.Error of an HTTP client that timed out is retried.
//  4. A connection that was refused, reset or could not be made, a name that was not found, and a
//     truncated answer are Network, also inside errors of package net and of an http.Client.
//  5. Any other error is retried, with Kind Unknown.
//
// An error that is retried by these rules can say more by methods, as smithy-python's
// ErrorRetryInfo does. The Kind changes only if it is Unknown:
//
//	RetryAfter() time.Duration      the wait that the service asked for: Info.After, unless it is set
//	RetrySafe() (safe, known bool)  whether a repetition is safe: Info.Safe; known and not safe fails
//	Throttling() bool               true: Kind Throttled
//	Fault() retrypolicy.Fault       FaultServer: Kind Unavailable; FaultClient: Kind Conflict
//
// Certificate errors, TLS alerts and invalid addresses are Unknown to it, because it does not
// import package net; FromKind(neterr.Kind) knows them and fails the permanent ones. Classify walks
// the whole tree of wrapped errors, in the order of errors.Is; the first match counts.
func Classify(err error) Info {
	if err == nil {
		return Info{Verdict: VerdictSucceed}
	}
	if kit.IsPermanent(err) {
		return Info{Verdict: VerdictFail, Kind: transport.KindOf(err)}
	}
	if kind, ok := kindOf(err); ok {
		rule := errfilter.Of(err)
		if rule.Kind == transport.Cancelled {
			kind = transport.Cancelled
		}
		info := OfKind(kind)
		if rule.Retry { // for its cause, too
			info.Verdict = VerdictAgain
		}
		if e := transport.Find(err); e != nil {
			info.After = e.RetryAfter
			if e.Op == transport.OpDial {
				info.Safe = SafeYes
			}
		}
		info.say(err)
		return info
	}
	info := Info{Verdict: VerdictAgain, Kind: transport.Unknown}
	var seen network
	errchain.Any(err, func(err error) bool {
		e, nested := err.(*Error)
		if nested && e.Is(transport.Cancelled) || err == context.Canceled || //nolint:errorlint // Any walks
			err == context.DeadlineExceeded { //nolint:errorlint // it has a method Timeout too
			info.Verdict = VerdictFail
			return true
		}
		if safe, ok := seen.failure(err); ok {
			info.Kind, info.Safe = transport.Network, safe
			return true
		}
		if t, ok := err.(interface{ Timeout() bool }); ok && t.Timeout() {
			info.Kind = transport.Timeout
			return true
		}
		return false
	})
	info.say(err)
	return info
}

// say applies what a retryable err says by its methods, RetryAfter included.
func (i *Info) say(err error) {
	if i.Verdict == VerdictAgain && i.After == 0 {
		i.After = kit.RetryAfter(err)
	}
	i.ask(err)
}

// ask applies what a retryable err says about itself by its methods.
func (i *Info) ask(err error) {
	if i.Verdict != VerdictAgain {
		return
	}
	var safe, known, throttling bool
	var fault Fault
	errchain.Any(err, func(err error) bool {
		if e, ok := err.(interface{ RetrySafe() (safe, known bool) }); ok && !known {
			safe, known = e.RetrySafe()
		}
		if e, ok := err.(interface{ Fault() Fault }); ok && fault == FaultUnknown {
			fault = e.Fault()
		}
		if e, ok := err.(interface{ Throttling() bool }); ok && e.Throttling() {
			throttling = true
		}
		return false
	})
	switch {
	case known && !safe:
		i.Safe, i.Verdict = SafeNo, VerdictFail
	case known && i.Safe == SafeUnknown:
		i.Safe = SafeYes
	}
	switch {
	case i.Kind != transport.Unknown:
	case throttling:
		i.Kind = transport.Throttled
	case fault == FaultServer:
		i.Kind = transport.Unavailable
	case fault == FaultClient:
		i.Kind = transport.Conflict
	}
}

// kindOf is transport.KindOf that also reports whether err has a Kind.
func kindOf(err error) (kind transport.Kind, ok bool) {
	errchain.Any(err, func(err error) bool {
		switch e := err.(type) {
		case *transport.Error:
			if ok = e != nil; ok {
				kind = e.Kind
			}
			return true
		case transport.Kind:
			kind, ok = e, true
		}
		return ok
	})
	return kind, ok
}

// Permanent marks err as one that must not be retried; it overrides every classifier.
// Permanent(nil) is nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &kit.Permanent{Err: err}
}

// KindSet is a set of Kinds.
type KindSet uint32

// Kinds returns the set of the given Kinds.
func Kinds(kinds ...transport.Kind) KindSet {
	var s KindSet
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Has reports whether k is in the set.
func (s KindSet) Has(k transport.Kind) bool { return s>>k&1 != 0 }
