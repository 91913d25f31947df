package retrypolicy

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy/internal/kit"
	"github.com/hubline-iot/hubline/transport"
)

// Verdict says what follows an attempt.
type Verdict uint8

const (
	VerdictUndecided Verdict = iota // leaves the outcome to the next classifier
	VerdictAgain                    // makes another attempt, if the policy allows it
	VerdictFail                     // ends the series with a failure
	VerdictSucceed                  // ends the series with a success, even if there is an error
)

var verdictText = [...]string{VerdictUndecided: "undecided", VerdictAgain: "again", VerdictFail: "fail",
	VerdictSucceed: "succeed"}

// String returns the name of the verdict.
func (v Verdict) String() string {
	if int(v) >= len(verdictText) {
		return "undefined verdict"
	}
	return verdictText[v]
}

// Safe says whether the operation may be repeated after the failure.
type Safe uint8

const (
	SafeUnknown Safe = iota // the service may or may not have acted
	SafeYes                 // the service did not act, or acting twice does no harm
	SafeNo                  // acting twice would do harm; there is no retry
)

// Fault says which side caused a failure.
type Fault uint8

const (
	FaultUnknown Fault = iota
	FaultClient        // the request was at fault
	FaultServer        // the service was at fault
)

// Info is a classifier's answer about the outcome of an attempt. The zero Info is Undecided.
type Info struct {
	Verdict Verdict
	// Kind is the class of the failure. It selects delays in ByKind and costs in a quota.
	Kind transport.Kind
	Safe Safe
	// After is the wait that the service asked for. 0: none. Negative: the service asked not to retry.
	After time.Duration
}

// Classifier judges a non-nil error. It must be safe for concurrent use if the Retrier is shared.
type Classifier func(err error) Info

// FromKind makes a classifier from a function that finds the Kind of an error, such as neterr.Kind;
// OfKind judges the Kind, and a method RetryAfter() time.Duration of the error sets After. Errors
// without a Kind, and those that Permanent marked, are Undecided.
func FromKind(find func(error) (kind transport.Kind, ok bool)) Classifier {
	return func(err error) Info {
		if kit.IsPermanent(err) {
			return Info{}
		}
		kind, ok := find(err)
		if !ok {
			return Info{}
		}
		info := OfKind(kind)
		info.After = kit.RetryAfter(err)
		return info
	}
}

// OfKind judges a failure of Kind k by the table of package errfilter. It is SafeYes if a service
// that answers so has not acted on the request.
func OfKind(k transport.Kind) Info {
	info := Info{Verdict: VerdictFail, Kind: k}
	if kit.NotActed(k) {
		info.Safe = SafeYes
	}
	if errfilter.OfKind(k).Retry {
		info.Verdict = VerdictAgain
	}
	return info
}
