package hubauth

import (
	"crypto/tls"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Clock is the hub's, as far as its Date headers tell. It is kept as an offset from this process's
// own clock, so that it does not depend on what the credentials' clock says, which may be this one.
// When the process's clock is set, nothing is known until the next answer. The zero value knows
// nothing. Its methods may be called by many goroutines at a time.
//
// A Date header can be wrong or forged, and a token that is signed for a far time is valid until
// then. So the hub's clock never makes a token live longer:
//
//   - A clock that is set bounds the tokens: none expires later than TokenLife by that clock.
//   - A clock that is not set (transport.Credentials.Implausible) is replaced by the hub's only
//     when TLS has verified the peer and its certificate is valid at the time that it tells.
type Clock struct {
	latest atomic.Pointer[estimate] // nil: none
}

// estimate is what an answer told.
type estimate struct {
	offset time.Duration // of the hub's clock from time.Now
	at     time.Time     // when it held, with a monotonic reading
	wall   time.Time     // the same by the wall clock alone
	proven bool          // by TLS
}

const (
	// resolution is that of a Date header, and what is not worth a correction.
	resolution = time.Second
	// tolerance is the error of the credentials' clock that tokens stand: a hub allows five minutes.
	tolerance = time.Minute
)

// stands reports whether the wall clock has not been set since. It moves on where the monotonic one
// stands still, too: while a machine is suspended.
func (e *estimate) stands(now time.Time) bool {
	return (now.Round(0).Sub(e.wall) - now.Sub(e.at)).Abs() <= tolerance
}

// Learn reads the Date of an answer to a request that was sent at this moment and answered at that,
// both by time.Now. peer is the TLS connection of the answer, nil for a connection without TLS;
// what TLS has proven is not replaced by what it has not. When in between the hub wrote it is not
// known, so what was learnt before stays as long as it may be right, as does a clock of which
// nothing is known: a slow answer does not undo what a quick one told, and the first one, be it
// ever so slow, leaves no larger error than the time that it took.
func (c *Clock) Learn(header http.Header, peer *tls.ConnectionState, sent, answered time.Time) {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil || date.Year() < 2000 {
		return
	}
	proven := proves(peer, date)
	half := answered.Sub(sent) / 2
	told := date.Add(resolution / 2).Sub(answered.Round(0).Add(-half))
	for {
		before := c.latest.Load()
		e := &estimate{at: answered, wall: answered.Round(0), proven: proven}
		if before != nil && before.stands(answered) {
			if before.proven && !proven {
				return
			}
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

// proves reports whether peer was verified by a certificate that is valid at date.
func proves(peer *tls.ConnectionState, date time.Time) bool {
	if peer == nil || len(peer.VerifiedChains) == 0 {
		return false
	}
	leaf := peer.PeerCertificates[0]
	return !date.Before(leaf.NotBefore) && !date.After(leaf.NotAfter)
}

// known returns what is known at now, nil for nothing.
func (c *Clock) known(now time.Time) *estimate {
	if e := c.latest.Load(); e != nil && e.stands(now) {
		return e
	}
	return nil
}

// Now is the hub's time, or this process's while nothing is known. It is not ahead of this
// process's clock where that is set, nor where TLS has not proven the hub's time.
func (c *Clock) Now() time.Time {
	now := time.Now()
	e := c.known(now)
	if e == nil || e.offset > 0 && !(e.proven && new(transport.Credentials).Implausible(now)) {
		return now
	}
	return now.Add(e.offset)
}

// Skew is how far the hub's clock is ahead of time.Now. False: no answer has told it yet, or not
// since that clock was set.
func (c *Clock) Skew() (skew time.Duration, known bool) {
	if e := c.known(time.Now()); e != nil {
		return e.offset, true
	}
	return 0, false
}

// judge returns the times to make tokens by. now is the hub's time if it is known to differ from
// that of the credentials: it says when a token is to be renewed. from is when the life of a new
// token begins.
func (c *Clock) judge(creds *transport.Credentials) (now, from time.Time) {
	own := creds.Time()
	process := time.Now()
	e := c.known(process)
	if e == nil {
		return own, own
	}
	hubs := process.Add(e.offset)
	switch ahead := hubs.Sub(own); {
	case ahead.Abs() <= tolerance:
		return own, own
	case ahead > 0 && !(e.proven && creds.Implausible(own)):
		return hubs, own
	}
	return hubs, hubs
}

// Outlived reports whether token, which the credentials' clock made, had expired by the hub's clock
// before it was sent: the credentials' clock is late by more than the life of a token.
func (c *Clock) Outlived(token transport.Token) bool {
	skew, known := c.Skew()
	return known && !token.Expires.IsZero() && time.Now().Add(skew-tolerance).After(token.Expires)
}
