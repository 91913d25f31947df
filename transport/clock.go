package transport

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
)

// published is the publication time of this version of the module, in Unix seconds: 2026-11-01.
// Each release advances it. A clock that shows an earlier time is not set.
const published = 1793491200

// clockSet is the earliest time at which tokens are signed. Boards without a clock battery start in
// 1970.
var clockSet = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Implausible reports whether a clock that shows t cannot be right: t is before Earliest, or before
// this version of the module was published. Clock chips that lost their battery start in 2000 or
// later.
//
// Tokens are signed by such a clock nevertheless, because only the hub knows the time. A refused
// token that was signed then counts as ClockUnset, not as Unauthorized.
func (c *Credentials) Implausible(t time.Time) bool {
	return t.Unix() < published || t.Before(c.Earliest)
}

var errSign = errors.New("the key did not sign")

// signError marks err, an error of Sign: no token was sent, so no hub has refused one. err is ctx's
// or a new *Error.
func signError(err error) error {
	if e, ok := err.(*Error); ok {
		if e.Err == nil {
			e.Err = errSign
		}
		e.Err = errchain.Unasked{Err: e.Err}
	}
	return err
}

// ClockRefused reports whether failure, of Kind Unauthorized, may be caused by a clock that showed
// t when the token was signed: the hub refused a token from Sign, and the clock was not set. The
// failure then counts as ClockUnset.
func (c *Credentials) ClockRefused(t time.Time, failure *Error) bool {
	return failure.Kind == Unauthorized && c.Sign != nil && c.Implausible(t) && !errchain.IsUnasked(failure)
}
