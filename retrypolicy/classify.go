package retrypolicy

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/retrypolicy/internal/failure"
	"github.com/hubline-iot/hubline/transport"
)

// Verdict is what is to follow from the outcome of an attempt.
type Verdict uint8

const (
	// Undecided: no opinion; the next classifier is asked.
	Undecided Verdict = iota
	// Again: worth another attempt.
	Again
	// Fail: the end, a failure.
	Fail
	// Succeed: the end, a success, whatever the error says.
	Succeed
)

// Safe says whether a failure leaves it safe to repeat the operation, as far as the failure tells.
type Safe uint8

const (
	// SafeUnknown: the service may or may not have acted.
	SafeUnknown Safe = iota
	// SafeYes: the service did not act, or acting twice does no harm.
	SafeYes
	// SafeNo: acting twice would do harm.
	SafeNo
)

// Fault says whose fault a failure was. No policy here decides by it; it is for policies of your
// own and for logs.
type Fault uint8

const (
	FaultUnknown Fault = iota
	FaultClient
	FaultServer
)

// Info is what is known about the outcome of an attempt.
type Info struct {
	Verdict Verdict
	// Kind is the class of the failure, which costs and delays are chosen by.
	Kind  transport.Kind
	Safe  Safe
	Fault Fault
	// After is the wait that the service asked for; 0: none, negative: do not try again.
	After time.Duration
}

// Classifier judges an error; it is not asked about nil. Undecided leaves it to the next one.
type Classifier func(err error) Info

// Chain asks the classifiers in turn and takes the first that is not Undecided. Nil ones are left
// out.
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

// Classify is the classifier that is asked last. In this order:
//
//  1. What Permanent marked fails.
//  2. An error with a transport.Kind is judged by package errfilter, with its RetryAfter. The end
//     of the caller's context inside it fails.
//  3. A context's own error fails, but for one inside an error that says of itself, by a method
//     Timeout, that time was up: that is a Timeout, as is any other such error. So the *url.Error
//     of an HTTP client whose time was up is tried again, and a bare context.DeadlineExceeded is
//     not.
//  4. A connection that was refused, reset or could not be made, a name that was not found, and an
//     answer that was cut short are Network: so the errors of package net, and those of an
//     http.Client around them, count as failures of the service for Throttle, Breaker and Quota.
//  5. Any other error is worth another attempt, with Kind Unknown: an operation under a policy
//     is repeated unless there is a reason not to.
//
// The wait that another error tells by a method RetryAfter() time.Duration goes into Info.After.
//
// Boards are why it knows errors of package net without that package: certificates, TLS alerts and
// wrong addresses are Unknown to it. With FromKind(neterr.Kind) as the Retrier's classifier they
// have their Kinds too, and those that no retry mends fail.
//
// It looks through all that an error wraps, several causes included, in the order of errors.Is;
// within a step the first that is found counts.
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
		if err == context.Canceled || err == context.DeadlineExceeded { // the latter has a method Timeout too
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
	if info.Kind == transport.Unknown { // an error of the network tells no wait
		info.After = failure.RetryAfter(err)
	}
	return info
}

// FromKind makes a Classifier of a function that finds the Kind of an error, such as neterr.Kind:
// package errfilter judges the Kind. What has none is left to the next classifier.
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

// ofKind is what errfilter says of a failure of kind k.
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

// fault holds, for each Kind, whose fault it is.
var fault = [...]Fault{
	transport.Unavailable: FaultServer, transport.Throttled: FaultClient, transport.Quota: FaultClient,
	transport.ClockUnset:   FaultClient,
	transport.Unauthorized: FaultClient, transport.Forbidden: FaultClient, transport.NotFound: FaultClient,
	transport.TooLarge: FaultClient,
	transport.Invalid:  FaultClient, transport.Conflict: FaultClient, transport.Unsupported: FaultClient,
	transport.Protocol: FaultUnknown,
}

// kindOf is transport.KindOf, which also tells whether there is one.
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

// Permanent marks err as one that must not be retried, for operations that know better than any
// classifier. nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &failure.Permanent{Err: err}
}

// KindSet is a set of Kinds.
type KindSet uint32

// Kinds makes a set.
func Kinds(kinds ...transport.Kind) KindSet {
	var s KindSet
	for _, k := range kinds {
		s |= 1 << k
	}
	return s
}

// Has reports whether k is in the set.
func (s KindSet) Has(k transport.Kind) bool { return s>>k&1 != 0 }
