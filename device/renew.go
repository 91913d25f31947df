package device

import (
	"time"
)

// drainTime is how long a replaced session may take to get the answers to what is in flight, so that nothing is sent twice.
const drainTime = 5 * time.Second

// shortLife is the life below which a token is not worth a renewal.
const shortLife = 5 * time.Second

// planRenewal settles when a session whose credentials expire then is replaced. When a renewal brought nothing later, there is nothing to be had.
func (l *loop) planRenewal(expires time.Time) {
	vain := l.renewal && !expires.After(l.expires)
	l.expires, l.renewAt, l.renewal = expires, time.Time{}, false
	if expires.IsZero() || vain || l.c.set.RenewAt < 0 {
		return
	}
	wall := l.c.creds.Time()
	life := expires.Sub(wall)
	if life < shortLife {
		return // it has run out by our clock, which may be wrong; the hub judges by its own
	}
	early := float64(l.c.set.Rand()>>11) / (1 << 53) * 0.05 // a fraction of 5 %
	l.renewAt = wall.Add(time.Duration(float64(life) * max(0, l.c.set.RenewAt-early)))
}

// replaceNow reports whether, and why, the live session is to be replaced at this moment.
func (l *loop) replaceNow(now time.Time) (Reason, bool) {
	if l.c.reconnect.Swap(false) {
		return Planned, true
	}
	if l.clockJumped(now) > 0 {
		return ClockJumped, true
	}
	if l.drainBy.IsZero() {
		if at := l.renewalDue(now); at.IsZero() || now.Before(at) {
			return 0, false
		}
		l.drainBy = now.Add(drainTime)
	}
	if !l.c.box.idle() && now.Before(l.drainBy) {
		return 0, false
	}
	return TokenRenewal, true
}

// renewalDue returns when to begin to replace the session, by the process's clock; zero: never, or it has begun.
func (l *loop) renewalDue(now time.Time) time.Time {
	if l.renewAt.IsZero() || !l.drainBy.IsZero() {
		return time.Time{}
	}
	return now.Add(l.renewAt.Sub(l.c.creds.Time()))
}

// replace goes on to a new connection after a healthy one was hung up.
func (l *loop) replace(reason Reason) phase {
	l.renewal = reason == TokenRenewal
	l.down(nil)
	l.publish(Status{State: DisconnectedRetrying, Reason: reason})
	l.publish(Status{State: DisconnectedRetrying, Reason: Connecting, Retry: l.retry})
	return connecting
}
