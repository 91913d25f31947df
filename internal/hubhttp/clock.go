package hubhttp

import (
	"crypto/tls"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Clock estimates the hub's clock from its Date headers. It stores an offset from this process's
// clock, so it does not depend on the credentials' clock, which may be this Clock. When the
// process's clock is set, the estimate is invalid until the next answer. The zero value has no
// estimate. It is safe for concurrent use.
//
// A Date header can be wrong or forged, and a token signed for a distant time is valid until then.
// So the hub's clock never extends a token's life:
//
//   - A clock that is set bounds the tokens: none expires later than TokenLife by that clock.
//   - A clock that is not set (transport.Credentials.Implausible) is replaced by the hub's only
//     when TLS has verified the peer and its certificate is valid at the hub's time.
type Clock struct {
	latest atomic.Pointer[estimate] // nil: none
}

// estimate is the result of one answer.
type estimate struct {
	offset time.Duration // hub's clock minus time.Now
	at     time.Time     // time of the answer, with a monotonic reading
	wall   time.Time     // the same without the monotonic reading
	proven bool          // TLS has verified the peer
}

const (
	// resolution is the resolution of a Date header, and the smallest offset that is corrected.
	resolution = time.Second
	// tolerance is an error of the credentials' clock that tokens survive: a hub allows five minutes.
	tolerance = time.Minute
)

// isValid reports whether the wall clock has not been set since the estimate. The tolerance covers
// the time that a machine is suspended: then the wall clock advances and the monotonic one may not.
func (e *estimate) isValid(now time.Time) bool {
	return (now.Round(0).Sub(e.wall) - now.Sub(e.at)).Abs() <= tolerance
}

// Learn updates the estimate from the Date of an answer to a request; sent and answered are by
// time.Now. peer is the TLS connection of the answer, nil without TLS. An answer without verified
// TLS does not replace a verified estimate.
//
// The hub wrote Date at an unknown time between sent and answered. So the previous offset,
// initially 0, is kept as long as it is consistent with the answer: a slow answer does not replace
// the estimate of a quick one, and the error of a first slow answer is at most its round trip.
func (c *Clock) Learn(header http.Header, peer *tls.ConnectionState, sent, answered time.Time) {
	date, err := http.ParseTime(header.Get("Date"))
	if err != nil || date.Year() < 2000 {
		return
	}
	proven := proves(peer, date)
	half := answered.Sub(sent) / 2
	measured := date.Add(resolution / 2).Sub(answered.Round(0).Add(-half))
	for {
		before := c.latest.Load()
		e := &estimate{at: answered, wall: answered.Round(0), proven: proven}
		if before != nil && before.isValid(answered) {
			if before.proven && !proven {
				return
			}
			e.offset = before.offset
		}
		if (measured - e.offset).Abs() > resolution+half {
			e.offset = measured
		}
		if c.latest.CompareAndSwap(before, e) {
			return
		}
	}
}

// proves reports whether TLS verified peer with a certificate that is valid at date.
func proves(peer *tls.ConnectionState, date time.Time) bool {
	if peer == nil || len(peer.VerifiedChains) == 0 {
		return false
	}
	leaf := peer.PeerCertificates[0]
	return !date.Before(leaf.NotBefore) && !date.After(leaf.NotAfter)
}

// known returns the estimate that is valid at now, nil for none.
func (c *Clock) known(now time.Time) *estimate {
	if e := c.latest.Load(); e != nil && e.isValid(now) {
		return e
	}
	return nil
}

// Now returns the hub's time, or this process's without an estimate. It is never ahead of this
// process's clock, unless that clock is not set and TLS has verified the hub's time.
func (c *Clock) Now() time.Time {
	now := time.Now()
	e := c.known(now)
	if e == nil || e.offset > 0 && !(e.proven && new(transport.Credentials).Implausible(now)) {
		return now
	}
	return now.Add(e.offset)
}

// Skew returns how far the hub's clock is ahead of time.Now. known is false without an estimate.
func (c *Clock) Skew() (skew time.Duration, known bool) {
	if e := c.known(time.Now()); e != nil {
		return e.offset, true
	}
	return 0, false
}

// tokenTimes returns the times for making tokens. now decides when a token must be renewed: it is
// the hub's time if that is known to differ from the credentials' clock. from is the start of a new
// token's life.
func (c *Clock) tokenTimes(creds *transport.Credentials) (now, from time.Time) {
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

// TokenTime returns the time at which the life of a new token of creds begins.
func (c *Clock) TokenTime(creds *transport.Credentials) time.Time {
	_, from := c.tokenTimes(creds)
	return from
}

// Corrected reports whether the life of a token of creds that began at made would begin at another
// time now, by more than tokens tolerate.
func (c *Clock) Corrected(creds *transport.Credentials, made time.Time) bool {
	return c.TokenTime(creds).Sub(made).Abs() > tolerance
}

// Outlived reports whether token, made by the credentials' clock, had expired by the hub's clock
// before it was sent: then the credentials' clock is behind by more than a token's life.
func (c *Clock) Outlived(token transport.Token) bool {
	skew, known := c.Skew()
	return known && !token.Expires.IsZero() && time.Now().Add(skew-tolerance).After(token.Expires)
}
