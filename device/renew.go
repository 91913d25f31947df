package device

import (
	"time"
)

const (
	// drainTime is how long a session that is renewed may take to get the answers to what is in flight, so that nothing is sent twice and no command comes
	// twice.
	drainTime = 5 * time.Second
	// handlerTime is how long a session that Reconnect hangs up waits for a handler at work, which may be the one that called Reconnect.
	handlerTime = time.Second
)

// shortLife is the life below which a token is not worth a renewal.
const shortLife = 5 * time.Second

// planRenewal settles when a session whose credentials expire then is replaced. A source that gave the same token again is asked once more after 85 % of what
// remains, and so on.
func (l *loop) planRenewal(expires time.Time) {
	l.renewAt = time.Time{}
	if expires.IsZero() || l.c.set.RenewAt < 0 {
		return
	}
	wall := l.c.creds.Time()
	life := expires.Sub(wall)
	if life < shortLife {
		return // it has run out by our clock, which may be wrong; the hub judges by its own
	}
	early := float64(l.c.set.Rand()>>11) / (1 << 53) * 0.05 // a fraction of 5 %
	l.renewAt = wall.Add(time.Duration(float64(life) * (l.c.set.RenewAt - early)))
}

// replaceNow reports whether, and why, the live session is to be replaced at this moment.
func (l *loop) replaceNow(now time.Time) (Reason, bool) {
	if l.clockJumped(now) > 0 {
		return ClockJumped, true
	}
	switch at := l.renewalDue(now); {
	case l.c.reconnect.Swap(false):
		l.leaving, l.drainBy = Planned, now.Add(handlerTime)
	case !at.IsZero() && !now.Before(at):
		l.leaving, l.drainBy = TokenRenewal, now.Add(drainTime)
	}
	if l.drainBy.IsZero() {
		return 0, false
	}
	busy := l.c.in.working() || l.leaving == TokenRenewal && !l.c.box.idle()
	return l.leaving, !busy || !now.Before(l.drainBy)
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
	l.down(nil)
	l.publish(Status{State: DisconnectedRetrying, Reason: reason})
	l.publish(Status{State: DisconnectedRetrying, Reason: Connecting, Retry: l.retry})
	return connecting
}
