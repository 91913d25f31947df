package transport

import "time"

// published is when this version of the module was published, in Unix seconds: 2026-11-01. Each release moves it on. A clock that shows an earlier time is not set.
const published = 1793491200

// clockSet is the earliest time at which tokens are signed: boards without a clock battery start in 1970.
var clockSet = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// Implausible reports whether a clock that shows t cannot be right: t is before Earliest, or before this version of the module was published. Clock chips that lost their battery start
// in 2000 or later.
//
// Tokens are signed by such a clock all the same, because only the hub knows the time. A token that was signed then and is refused counts as ClockUnset, not as Unauthorized.
func (c *Credentials) Implausible(t time.Time) bool {
	return t.Unix() < published || t.Before(c.Earliest)
}
