package retrypolicy

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// Verdict is what is to follow from the outcome of a try.
type Verdict uint8

const (
	// Undecided: no opinion; the next classifier is asked.
	Undecided Verdict = iota
	// Again: worth another try.
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

// Fault says whose fault a failure was. No policy here decides by it; it is for policies of one's own, and for logs.
type Fault uint8

const (
	FaultUnknown Fault = iota
	FaultClient
	FaultServer
)

// Info is what is known about the outcome of a try.
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

// Chain asks the classifiers in turn and takes the first that is not Undecided. Nil ones are left out.
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

// Classify is the classifier that is asked last. In this order: what Permanent marked fails; an error with a transport.Kind is judged by package errfilter,
// with its RetryAfter; a context's error fails; an error whose method Timeout reports true is a Timeout; any other error is worth another try,
// with Kind Unknown: whoever runs an operation under a policy wants it repeated unless there is a reason not to.
func Classify(err error) Info {
	if err == nil {
		return Info{Verdict: Succeed}
	}
	if isPermanent(err) {
		return Info{Verdict: Fail, Kind: transport.KindOf(err)}
	}
	if kind, ok := kindOf(err); ok {
		info := Info{Verdict: Fail, Kind: kind, Safe: safe[min(int(kind), len(safe)-1)], Fault: fault[min(int(kind), len(fault)-1)]}
		if errfilter.OfKind(kind).Retry {
			info.Verdict = Again
		}
		if e := transport.Find(err); e != nil {
			info.After = e.RetryAfter
			if e.Op == transport.OpDial {
				info.Safe = SafeYes
			}
		}
		return info
	}
	for cause := err; cause != nil; cause = errors.Unwrap(cause) {
		if cause == context.Canceled || cause == context.DeadlineExceeded {
			return Info{Verdict: Fail, Kind: transport.Unknown}
		}
		if t, ok := cause.(interface{ Timeout() bool }); ok && t.Timeout() {
			return Info{Verdict: Again, Kind: transport.Timeout}
		}
	}
	return Info{Verdict: Again, Kind: transport.Unknown}
}

// safe holds, for each Kind, whether a service that answers so has not acted. Those that are not listed leave it open.
var safe = [...]Safe{
	transport.Throttled: SafeYes, transport.Quota: SafeYes, transport.ClockUnset: SafeYes, transport.Unauthorized: SafeYes, transport.Untrusted: SafeYes,
	transport.Forbidden: SafeYes, transport.NotFound: SafeYes, transport.TooLarge: SafeYes, transport.Invalid: SafeYes, transport.Conflict: SafeYes,
	transport.Unsupported: SafeYes, transport.Protocol: SafeUnknown,
}

// fault holds, for each Kind, whose fault it is.
var fault = [...]Fault{
	transport.Unavailable: FaultServer, transport.Throttled: FaultClient, transport.Quota: FaultClient, transport.ClockUnset: FaultClient,
	transport.Unauthorized: FaultClient, transport.Forbidden: FaultClient, transport.NotFound: FaultClient, transport.TooLarge: FaultClient,
	transport.Invalid: FaultClient, transport.Conflict: FaultClient, transport.Unsupported: FaultClient, transport.Protocol: FaultUnknown,
}

// kindOf is transport.KindOf, which also tells whether there is one.
func kindOf(err error) (transport.Kind, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		switch e := err.(type) {
		case *transport.Error:
			return transport.KindOf(e), e != nil
		case transport.Kind:
			return e, true
		}
	}
	return transport.Unknown, false
}

// Permanent marks err as one that must not be retried, for operations that know better than any classifier. nil stays nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanent{err}
}

type permanent struct{ err error }

func (p *permanent) Error() string { return p.err.Error() }
func (p *permanent) Unwrap() error { return p.err }

func isPermanent(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if _, ok := err.(*permanent); ok {
			return true
		}
	}
	return false
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
