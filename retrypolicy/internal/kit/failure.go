package kit

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/transport"
)

// Invalid returns the error for an invalid parameter.
func Invalid(text string) *transport.Error {
	return &transport.Error{Kind: transport.Invalid, Err: errors.New("retry policy: " + text)}
}

// Rule is a rule that parameters break if Broken; Bad makes one.
type Rule struct {
	Broken bool
	Text   string
}

// Bad returns the rule that is broken if cond. text names the field and says what to give.
func Bad(cond bool, text string) Rule { return Rule{cond, text} }

// Check returns the error for the first broken rule. prefix begins its text: "Type.".
func Check(prefix string, rules ...Rule) error {
	for _, r := range rules {
		if r.Broken {
			return Invalid(prefix + r.Text)
		}
	}
	return nil
}

// Permanent is an error that retrypolicy.Permanent marked.
type Permanent struct{ Err error }

func (p *Permanent) Error() string { return p.Err.Error() }
func (p *Permanent) Unwrap() error { return p.Err }

// IsPermanent reports whether retrypolicy.Permanent marked err.
func IsPermanent(err error) bool {
	_, ok := find[*Permanent](err)
	return ok
}

// find returns the first T in err's chain.
func find[T any](err error) (found T, ok bool) {
	errchain.Any(err, func(err error) bool {
		found, ok = err.(T)
		return ok
	})
	return found, ok
}

// Cancelled reports whether err is, or wraps, context.Canceled.
func Cancelled(err error) bool { return errchain.Has(err, context.Canceled) }

// EndedByContext reports whether err is, or wraps, the error of a context, which means that there
// was no answer.
func EndedByContext(err error) bool {
	return Cancelled(err) || errchain.Has(err, context.DeadlineExceeded)
}

// StatusError is an error with the HTTP status of an answer.
type StatusError interface {
	error
	HTTPStatusCode() int
}

// Status returns the outermost error of err's chain that has a status.
func Status(err error) (StatusError, bool) { return find[StatusError](err) }

// RetryAfter returns the delay that the service asked for, from the first error of the chain that
// has one.
func RetryAfter(err error) time.Duration {
	if e, ok := find[interface{ RetryAfter() time.Duration }](err); ok {
		return e.RetryAfter()
	}
	return 0
}

// NotActed reports whether a service that answers with kind has not acted on the request.
func NotActed(kind transport.Kind) bool { return notActed>>kind&1 != 0 }

const notActed uint64 = 1<<transport.Throttled | 1<<transport.Quota | 1<<transport.ClockUnset |
	1<<transport.Unauthorized | 1<<transport.Untrusted | 1<<transport.Forbidden | 1<<transport.NotFound |
	1<<transport.TooLarge | 1<<transport.Invalid | 1<<transport.Conflict | 1<<transport.Unsupported
