package retrypolicy

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

// Verdict is the consequence of an attempt's outcome.
type Verdict uint8

const (
	// Undecided leaves the outcome to the next classifier.
	Undecided Verdict = iota
	// Again makes another attempt.
	Again
	// Fail ends the series with a failure.
	Fail
	// Succeed ends the series with a success, even if there is an error.
	Succeed
)

// Safe says what a failure reveals about whether the operation is safe to repeat.
type Safe uint8

const (
	// SafeUnknown: the service may or may not have acted.
	SafeUnknown Safe = iota
	// SafeYes: the service did not act, or acting twice does no harm.
	SafeYes
	// SafeNo: acting twice would do harm.
	SafeNo
)

// Fault says which side caused a failure. No policy of this module uses it; it is for your own
// policies and for logs.
type Fault uint8

const (
	FaultUnknown Fault = iota
	FaultClient
	FaultServer
)

// Info describes the outcome of an attempt.
type Info struct {
	Verdict Verdict
	// Kind is the class of the failure. It selects costs and delays.
	Kind  transport.Kind
	Safe  Safe
	Fault Fault
	// After is the wait that the service asked for. 0: none. Negative: the service asked not to retry.
	After time.Duration
}

// Classifier judges a non-nil error. It returns Undecided to leave it to the next one.
type Classifier func(err error) Info

// Chain calls the classifiers in order and returns the first result that is not Undecided. It skips
// nil ones.
func Chain(classifiers ...Classifier) Classifier {
	return func(err error) Info {
		for _, c := range classifiers {
			if c == nil {
				continue
			}
			if info := c(err); info.Verdict != Undecided {
				return info
			}
		}
		return Info{}
	}
}

// Classify is the classifier that is asked last. It applies these rules in order:
//
//  1. An error marked by Permanent fails.
//  2. An error with a transport.Kind is judged by package errfilter, with its RetryAfter. It fails
//     if it wraps the end of the caller's context.
//  3. A context error fails. Exception: an error whose method Timeout returns true is a Timeout,
//     even if it wraps a context error. So the *url.Error of an HTTP client that timed out is
//     retried, and a bare context.DeadlineExceeded is not.
//  4. A connection that was refused, reset or could not be made, a name that was not found, and a
//     truncated answer are Network. So Throttle, Breaker and Quota count the errors of package net,
//     and those of an http.Client around them, as failures of the service.
//  5. Any other error is retried, with Kind Unknown: an operation under a policy is repeated unless
//     there is a reason not to.
//
// If another error has a method RetryAfter() time.Duration, its result goes into Info.After.
//
// Classify does not import package net, which is too large for boards. Certificate errors, TLS
// alerts and invalid addresses are therefore Unknown to it. FromKind(neterr.Kind) as the Retrier's
// classifier gives them their Kinds and fails the permanent ones.
//
// Classify walks the whole tree of wrapped errors, in the order of errors.Is. Within a rule the
// first match counts.
func Classify(err error) Info {
	if err == nil {
		return Info{Verdict: Succeed}
	}
	if failure.IsPermanent(err) {
		return Info{Verdict: Fail, Kind: transport.KindOf(err)}
	}
	if kind, ok := kindOf(err); ok {
		if errfilter.Of(err).Kind == transport.Cancelled {
			kind = transport.Cancelled
		}
		info := ofKind(kind)
		if e := transport.Find(err); e != nil {
			info.After = e.RetryAfter
			if e.Op == transport.OpDial {
				info.Safe = SafeYes
			}
		}
		return info
	}
	info := Info{Verdict: Again, Kind: transport.Unknown}
	var seen network
	errchain.Any(err, func(err error) bool {
		if err == context.Canceled || err == context.DeadlineExceeded { // DeadlineExceeded has a method Timeout too
			info.Verdict = Fail
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
	if info.Kind == transport.Unknown { // a network error has no RetryAfter
		info.After = failure.RetryAfter(err)
	}
	return info
}

// FromKind makes a Classifier from a function that finds the Kind of an error, such as neterr.Kind.
// Package errfilter judges the Kind. An error without a Kind is Undecided.
func FromKind(find func(error) (kind transport.Kind, ok bool)) Classifier {
	return func(err error) Info {
		if failure.IsPermanent(err) {
			return Info{}
		}
		kind, ok := find(err)
		if !ok {
			return Info{}
		}
		info := ofKind(kind)
		info.After = failure.RetryAfter(err)
		return info
	}
}

// ofKind returns errfilter's judgement of a failure of kind k.
func ofKind(k transport.Kind) Info {
	info := Info{Verdict: Fail, Kind: k, Fault: fault[min(int(k), len(fault)-1)]}
	if failure.NotActed(k) {
		info.Safe = SafeYes
	}
	if errfilter.OfKind(k).Retry {
		info.Verdict = Again
	}
	return info
}

// fault maps each Kind to the side that caused it.
var fault = [...]Fault{
	transport.Unavailable: FaultServer, transport.Throttled: FaultClient, transport.Quota: FaultClient,
	transport.ClockUnset:   FaultClient,
	transport.Unauthorized: FaultClient, transport.Forbidden: FaultClient, transport.NotFound: FaultClient,
	transport.TooLarge: FaultClient,
	transport.Invalid:  FaultClient, transport.Conflict: FaultClient, transport.Unsupported: FaultClient,
	transport.Protocol: FaultUnknown,
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
	return &failure.Permanent{Err: err}
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
