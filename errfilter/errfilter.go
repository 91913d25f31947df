// Package errfilter decides which failures are retried.
//
// It is one fixed table over transport.Kind, the same for connecting and for sending, and for every
// protocol. A retry policy decides only about failures that are retryable by this table: it can
// refuse a retry but not allow another one.
package errfilter

import (
	"context"
	"errors"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/transport"
)

// Pace says how soon a retry may follow.
type Pace uint8

const (
	// PaceNormal: as the retry policy decides.
	PaceNormal Pace = iota
	// PaceSlow: an early retry would fail too, because the service is overloaded or somebody must act
	// first. The device client uses long delays.
	PaceSlow
)

// Rule is one row of the table.
type Rule struct {
	Kind  transport.Kind
	Retry bool
	Pace  Pace

	exception exception
}

// table has one row per Kind, at the Kind's own index. The texts are apart, in hints.go: a
// program that prints none does not link them.
var table = [...]Rule{
	{Kind: transport.Unknown},
	{Kind: transport.Network, Retry: true},
	{Kind: transport.Timeout, Retry: true},
	{Kind: transport.Unavailable, Retry: true},
	{Kind: transport.Throttled, Retry: true, Pace: PaceSlow},
	{Kind: transport.Quota, Retry: true, Pace: PaceSlow},
	{Kind: transport.ClockUnset, Retry: true, Pace: PaceSlow},
	{Kind: transport.Unauthorized},
	{Kind: transport.Untrusted},
	{Kind: transport.Forbidden},
	{Kind: transport.NotFound},
	{Kind: transport.TooLarge},
	{Kind: transport.Invalid},
	{Kind: transport.Conflict},
	{Kind: transport.Unsupported},
	{Kind: transport.Protocol},
	{Kind: transport.RetryExpired},
	{Kind: transport.Expired},
	{Kind: transport.Dropped},
	{Kind: transport.Closed},
	{Kind: transport.Cancelled},
	{Kind: transport.Poison},
}

var (
	forbidden = Rule{exception: stopAsked}
	violation = Rule{Kind: transport.Protocol, Retry: true, exception: violated}
	lifted    = Rule{Kind: transport.Unauthorized, Retry: true, Pace: PaceSlow, exception: mayBeLifted}
	rival     = Rule{Kind: transport.Conflict, exception: takenOver}
	success   = Rule{exception: noError}
)

// Of returns the rule for err, by the Kind of the outermost *transport.Error in its chain. Five
// causes change that rule:
//
//   - The end of the caller's context is Cancelled, which is not retryable, even inside a retryable
//     Kind. The chain contains it as the Kind Cancelled, as context.Canceled in a Timeout, as a
//     context error in an error without a Kind, or as the *retrypolicy.Error of a series that its
//     context ended, unless an *transport.Error wraps that.
//   - transport.ErrViolation makes Protocol retryable, and transport.ErrMayBeLifted Unauthorized.
//   - A negative RetryAfter makes a retryable Kind not retryable.
//   - transport.ErrProxy changes the hint: the hub was not reached.
//   - transport.ErrMaybeDamaged has no effect here: loops that connect, the requests of package
//     fileupload, and downloads of updates pass failures through a Damage first.
//
// A transport's own time limit is a Timeout with context.DeadlineExceeded or os.ErrDeadlineExceeded
// as cause, and stays retryable.
func Of(err error) Rule {
	if err == nil {
		return success
	}
	switch errchain.First(err, classifies).(type) {
	case nil, *transport.Error, transport.Kind:
	default:
		return table[transport.Cancelled]
	}
	kind := transport.KindOf(err)
	rule := OfKind(kind)
	e := transport.Find(err)
	switch {
	case kind == transport.Protocol && errors.Is(err, transport.ErrViolation):
		rule = violation
	case kind == transport.Unauthorized && errors.Is(err, transport.ErrMayBeLifted):
		rule = lifted
	case kind == transport.Conflict && errors.Is(err, transport.ErrTakenOver):
		rule = rival
	case kind == transport.Unknown && e == nil:
		if errchain.Has(err, context.Canceled) || errchain.Has(err, context.DeadlineExceeded) {
			return table[transport.Cancelled]
		}
	case rule.Retry && (errchain.Any(err, isCancelled) ||
		kind == transport.Timeout && errchain.Has(err, context.Canceled)):
		return table[transport.Cancelled]
	}
	if e != nil && e.RetryAfter < 0 && rule.Retry {
		r := forbidden
		r.Kind = kind
		return r
	}
	if e != nil && errors.Is(err, transport.ErrProxy) {
		rule.exception = proxyRefused
	}
	return rule
}

// classifies reports whether err itself has a Kind: its own, or Cancelled by a method
// EndedByContext, which an error of retrypolicy has.
func classifies(err error) bool {
	switch e := err.(type) {
	case *transport.Error, transport.Kind:
		return true
	case interface{ EndedByContext() bool }:
		return e.EndedByContext()
	}
	return false
}

// isCancelled reports whether err is of Kind Cancelled.
func isCancelled(err error) bool {
	if e, ok := err.(*transport.Error); ok {
		return e != nil && e.Kind == transport.Cancelled
	}
	k, ok := err.(transport.Kind)
	return ok && k == transport.Cancelled
}

// MaxDamage is the number of consecutive retries of failures with the cause
// transport.ErrMaybeDamaged.
const MaxDamage = 3

// Damage counts consecutive failures that may be due to data damaged in transit. The zero value is
// ready. It is not safe for concurrent use.
type Damage struct{ row uint8 }

// Judge returns err as Of should see it. It gives a failure with the cause
// transport.ErrMaybeDamaged the retryable Kind Network, MaxDamage times in a row; after that the
// failure keeps its Kind. Any other err, nil included, is returned unchanged and resets the count.
func (d *Damage) Judge(err error) error {
	e := transport.Find(err)
	if e == nil || !errors.Is(err, transport.ErrMaybeDamaged) {
		d.row = 0
		return err
	}
	if d.row >= MaxDamage {
		return err
	}
	d.row++
	retried := *e
	retried.Kind = transport.Network
	return &retried
}

// OfKind returns the row of k.
func OfKind(k transport.Kind) Rule {
	if int(k) >= len(table) {
		k = transport.Unknown
	}
	return table[k]
}

// Retryable reports whether err is retryable: Of(err).Retry.
func Retryable(err error) bool { return Of(err).Retry }

// Rules returns the whole table, one row per Kind in order.
func Rules() []Rule { return append([]Rule(nil), table[:]...) }
