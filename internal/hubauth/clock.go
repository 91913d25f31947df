package hubauth

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Clock is the hub's, as far as its Date headers tell. It is kept as an offset from this process's own clock, so that it does not depend on what the credentials' clock
// says, which may be this one. The zero value knows nothing. Its methods may be called by many goroutines at a time.
type Clock struct {
	offset atomic.Int64 // of the hub's clock from time.Now
	known  atomic.Bool
}

const (
	// resolution is that of a Date header, and what is not worth a correction.
	resolution = time.Second
	// tolerance is the error of the credentials' clock that tokens stand: a hub allows five minutes.
	tolerance = time.Minute
)

// Learn reads the Date of an answer to a request that was sent at this moment and answered at that. When in between the hub wrote it is not known, so what was learnt before stays as
// long as it may be right: a slow answer does not undo what a quick one told.
func (c *Clock) Learn(header http.Header, sent, answered time.Time) {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil || date.Year() < 2000 {
		return
	}
	trip := answered.Sub(sent)
	offset := date.Add(resolution / 2).Sub(sent.Add(trip / 2))
	for before := c.offset.Load(); (offset - time.Duration(before)).Abs() > resolution+trip/2; before = c.offset.Load() {
		if c.offset.CompareAndSwap(before, int64(offset)) {
			break
		}
	}
	c.known.Store(true)
}

// Now is the hub's time, or this process's while nothing is known.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// Skew is how far the hub's clock is ahead of time.Now. False: no answer has told it yet.
func (c *Clock) Skew() (skew time.Duration, known bool) {
	return time.Duration(c.offset.Load()), c.known.Load()
}

// judge is the time to make tokens by: the credentials', unless the hub's is known to be another.
func (c *Clock) judge(creds *transport.Credentials) time.Time {
	own := creds.Time()
	if c.known.Load() {
		if hubs := c.Now(); hubs.Sub(own).Abs() > tolerance {
			return hubs
		}
	}
	return own
}
