package hubauth

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Clock is the hub's, as far as its Date headers tell. It is kept as an offset from this process's own clock, so that it does not depend on what the credentials' clock
// says, which may be this one. When the process's clock is set, nothing is known until the next answer. The zero value knows nothing. Its methods may be called by many goroutines at a time.
type Clock struct {
	latest atomic.Pointer[estimate] // nil: none
}

// estimate is what an answer told.
type estimate struct {
	offset time.Duration // of the hub's clock from time.Now
	at     time.Time     // when it held, with a monotonic reading
	wall   time.Time     // the same by the wall clock alone
}

const (
	// resolution is that of a Date header, and what is not worth a correction.
	resolution = time.Second
	// tolerance is the error of the credentials' clock that tokens stand: a hub allows five minutes.
	tolerance = time.Minute
)

// stands reports whether the wall clock has not been set since. It moves on where the monotonic one stands still, too: while a machine is suspended.
func (e *estimate) stands(now time.Time) bool {
	return (now.Round(0).Sub(e.wall) - now.Sub(e.at)).Abs() <= tolerance
}

// Learn reads the Date of an answer to a request that was sent at this moment and answered at that, both by time.Now. When in between the hub wrote it is not known, so what was learnt before
// stays as long as it may be right, as does a clock of which nothing is known: a slow answer does not undo what a quick one told, and the first one, be it ever so slow, leaves no larger error than
// the time that it took.
func (c *Clock) Learn(header http.Header, sent, answered time.Time) {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil || date.Year() < 2000 {
		return
	}
	half := answered.Sub(sent) / 2
	told := date.Add(resolution / 2).Sub(answered.Round(0).Add(-half))
	for {
		before := c.latest.Load()
		e := &estimate{at: answered, wall: answered.Round(0)}
		if before != nil && before.stands(answered) {
			e.offset = before.offset
		}
		if (told - e.offset).Abs() > resolution+half {
			e.offset = told
		}
		if c.latest.CompareAndSwap(before, e) {
			return
		}
	}
}

// Now is the hub's time, or this process's while nothing is known.
func (c *Clock) Now() time.Time {
	skew, _ := c.Skew()
	return time.Now().Add(skew)
}

// Skew is how far the hub's clock is ahead of time.Now. False: no answer has told it yet, or not since that clock was set.
func (c *Clock) Skew() (skew time.Duration, known bool) {
	if e := c.latest.Load(); e != nil && e.stands(time.Now()) {
		return e.offset, true
	}
	return 0, false
}

// judge is the time to make tokens by: the credentials', unless the hub's is known to be another.
func (c *Clock) judge(creds *transport.Credentials) time.Time {
	own := creds.Time()
	if skew, known := c.Skew(); known {
		if hubs := time.Now().Add(skew); hubs.Sub(own).Abs() > tolerance {
			return hubs
		}
	}
	return own
}
