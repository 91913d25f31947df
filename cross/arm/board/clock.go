package board

import (
	"sync/atomic"
	"time"
)

// Clock is a wall clock for a board without one: a time from the network, advanced by the board's
// own clock. The zero value is the own clock, shortly after the beginning of 1970. It is safe for
// concurrent use.
type Clock struct{ offset atomic.Int64 } // milliseconds

// Set sets the clock.
func (c *Clock) Set(now time.Time) { c.offset.Store(now.UnixMilli() - time.Now().UnixMilli()) }

// Now returns the time.
func (c *Clock) Now() time.Time {
	now, offset := time.Now(), c.offset.Load()
	if offset == 0 {
		return now
	}
	return time.UnixMilli(now.UnixMilli() + offset)
}
