// Package errfilter settles which failures are worth a retry. It is one fixed table over
// transport.Kind, the same for connecting and for sending, for every protocol; a retry policy is
// only asked about what this table lets through and cannot overrule it.
package errfilter

import (
	"context"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/transport"
)

// Pace says how a retry may be timed.
type Pace uint8

const (
	// Normal: as the retry policy says.
	Normal Pace = iota
	// Slow: the service or the situation asks for patience; the device client keeps to long delays.
	Slow
)

// Rule is one row of the table.
type Rule struct {
	Kind  transport.Kind
	Retry bool
	Pace  Pace
	// Reason says why, and what helps: one sentence for the person who reads the status.
	Reason string
}

// table has one row per Kind, at the Kind's own index.
var table = [...]Rule{
	{transport.Unknown, false, Normal,
		"the service gave an answer that is not known, and repeating what is not understood may do harm"},
	{transport.Network, true, Normal, "connections come back"},
	{transport.Timeout, true, Normal, "a slow network or service may be faster next time"},
	{transport.Unavailable, true, Normal, "the service is restarting or moving and will be back"},
	{transport.Throttled, true, Slow, "the service takes more when it gets less: wait"},
	{transport.Quota, true, Slow,
		"the allowance is refilled with time (a hub's daily quota at 00:00 UTC); buy units or send less"},
	{transport.ClockUnset, true, Slow, "the clock may be set any moment; set it, by SNTP for one"},
	{transport.Unauthorized, false, Normal, "the same credentials would be refused again; check key, device id, the " +
		"clock, and that the device is enabled"},
	{transport.Untrusted, false, Normal,
		"the same certificate would fail again; check host name, trusted roots and the clock"},
	{transport.Forbidden, false, Normal, "the identity lacks the right; grant it on the hub"},
	{transport.NotFound, false, Normal, "what does not exist will not appear by asking again; check names, and create it"},
	{transport.TooLarge, false, Normal, "the same message would be too large again; split it or upload it as a file"},
	{transport.Invalid, false, Normal, "the same input would be wrong again; correct the field that the error names"},
	{transport.Conflict, false, Normal, "the state must be read again before another try"},
	{transport.Unsupported, false, Normal, "this protocol or service lacks the operation; use another transport"},
	{transport.Protocol, false, Normal, "the peer does not speak the protocol as expected; check host and port"},
	{transport.RetryExpired, false, Normal,
		"the retry policy or the outage limit ended the retries; open the client again"},
	{transport.Expired, false, Normal, "the message's time is over"},
	{transport.Dropped, false, Normal, "the outbox was full and made room; enlarge it or send less"},
	{transport.Closed, false, Normal, "the client is not open"},
	{transport.Cancelled, false, Normal, "the context of the call ended; call again with another"},
}

var (
	cancelled = Rule{transport.Unknown, false, Normal, "the caller's context ended"}
	forbidden = Rule{transport.Unknown, false, Normal, "the service asked not to be tried again"}
	violation = Rule{transport.Protocol, true, Normal,
		"the peer broke the protocol on a connection that had worked; another connection may do better"}
	success = Rule{transport.Unknown, false, Normal, "there is no error"}
)

// Of returns the rule for err, by the Kind of the outermost *transport.Error in its chain. An error
// without a Kind is a context's (the caller gave up: no retry) or Unknown. A negative RetryAfter
// turns retryable into not. A cause that is transport.ErrViolation turns Protocol into retryable. A
// loop that connects passes its failures through a Damage first.
func Of(err error) Rule {
	if err == nil {
		return success
	}
	kind := transport.KindOf(err)
	e := transport.Find(err)
	if e == nil && kind == transport.Unknown && (hasCause(err, context.Canceled) ||
		hasCause(err, context.DeadlineExceeded)) {
		return cancelled
	}
	rule := OfKind(kind)
	if kind == transport.Protocol && hasCause(err, transport.ErrViolation) {
		rule = violation
	}
	if e != nil && e.RetryAfter < 0 && rule.Retry {
		r := forbidden
		r.Kind = kind
		return r
	}
	return rule
}

// MaxDamage is how many failures in a row with the cause transport.ErrMaybeDamaged are retried.
const MaxDamage = 3

// Damage counts failures in a row that may be damage on the way. The zero value counts from none.
// It is not safe for concurrent use.
type Damage struct{ row uint8 }

// Judge returns err as Of shall see it. A failure with the cause transport.ErrMaybeDamaged is
// returned with Kind Network, which is retried, until MaxDamage stood in a row; from then on it
// keeps its Kind. Any other err, nil included, is returned as it is and ends the row.
func (d *Damage) Judge(err error) error {
	e := transport.Find(err)
	if e == nil || !hasCause(err, transport.ErrMaybeDamaged) {
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

// Retryable reports whether err is worth a retry: Of(err).Retry.
func Retryable(err error) bool { return Of(err).Retry }

// Rules returns the whole table, one row per Kind in order.
func Rules() []Rule { return append([]Rule(nil), table[:]...) }

// hasCause looks for target; errors.Is needs reflection.
func hasCause(err, target error) bool {
	return errchain.Any(err, func(e error) bool { return e == target })
}
