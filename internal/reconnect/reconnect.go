// Package reconnect has the rules by which a device decides when to connect or to ask again, with
// the minimum delays that services need. They are pure functions of what the caller knows: the
// client's loop calls them with real time, the simulator of fleets with its own. Boards link it.
package reconnect

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
)

// Defaults of the options of a client.
const (
	DialTimeout = 30 * time.Second
	AckTimeout  = 30 * time.Second
	StableTime  = 30 * time.Second
	RenewAt     = 0.85
	MaxMessages = 4096
)

// LeastDelay is the shortest delay from the second retry on, unless the policy is
// retrypolicy.Immediately.
const LeastDelay = 100 * time.Millisecond

// AtLeast returns the delay of an operation's next retry, which from the second one on is at least
// LeastDelay: a policy may return 0 by accident.
func AtLeast(o *retrypolicy.Operation, delay time.Duration) time.Duration {
	if o.Retries() > 0 {
		return max(delay, LeastDelay)
	}
	return delay
}

// defaultSpread lets a device that is alone connect again within seconds, while a fleet makes half
// of the attempts.
const defaultSpread = 2 * time.Second

// MostSpread returns the bound of the random part of the delay before a retry, for the option
// ReconnectSpread. 0 or less: no random part. By default the first retry has none, because an
// interruption that is over costs a device that is alone no time.
func MostSpread(option time.Duration, retry int) time.Duration {
	if option == 0 && retry > 1 {
		return defaultSpread
	}
	return option
}

// Spread returns the random part of a delay, below most. most must be above 0.
func Spread(most time.Duration, draw uint64) time.Duration {
	return time.Duration(draw % uint64(most))
}

const (
	// usefulMessages is the number of messages that are worth a connection, however short.
	usefulMessages = 16
	// usefulTime is the minimum uptime of a useful connection with fewer. It limits how often the
	// client dials a peer that acknowledges a message and hangs up.
	usefulTime = 500 * time.Millisecond
	// usefulShare is the minimum ratio of that uptime to the delay before it.
	usefulShare = 5
)

// Useful reports whether a connection that was not stable was worth what it cost, so that the count
// of retries begins anew and its uptime counts toward the next delay. came is the number of
// messages that were acknowledged or settled on it: many, or some in much more time than the delay
// before it. A connection that ended with a slow pace (errfilter.PaceSlow) is not useful, so the
// delay stays.
func Useful(up, before time.Duration, came uint64, pace errfilter.Pace) bool {
	lasted := up >= usefulTime && up/usefulShare >= before
	return pace == errfilter.PaceNormal && (came >= usefulMessages || came > 0 && lasted)
}

// ShortLife is the remaining life below which a token is not renewed.
const ShortLife = 5 * time.Second

// RenewIn returns the time until a token with the given remaining life, ShortLife at least, is
// renewed: the fraction renewAt of it, less up to 5 % of it at random.
func RenewIn(life time.Duration, renewAt float64, draw uint64) time.Duration {
	return times.Part(life, renewAt) - times.Drawn(life/20, draw)
}

// Turns gives attempts to connect their turns, at least Gap apart. The zero value has no gap. It is
// not safe for concurrent use.
type Turns struct {
	Gap  time.Duration
	next time.Time // no attempt begins earlier
}

// Next returns the earliest time from now on at which an attempt may begin.
func (t *Turns) Next(now time.Time) time.Time { return times.Later(now, t.next) }

// Take returns and reserves Next.
func (t *Turns) Take(now time.Time) time.Time {
	at := t.Next(now)
	t.next = at.Add(max(0, t.Gap))
	return at
}
