package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/fraction"
	"github.com/hubline-iot/hubline/transport"
)

const (
	// drainTime is how long a session that is renewed may take to get the answers to what is in
	// flight, so that nothing is sent or delivered twice.
	drainTime = 5 * time.Second
	// handlerTime is how long a session that Reconnect hangs up waits for a handler at work, which may
	// be the one that called Reconnect.
	handlerTime = time.Second
)

// shortLife is the life below which a token is not worth a renewal.
const shortLife = 5 * time.Second

// planRenewal settles when the session's credentials, which expire then, are renewed. A source that
// gave the same token again is asked once more after 85 % of what remains, and so on.
func (l *loop) planRenewal(expires time.Time) {
	l.renewAt = time.Time{}
	if expires.IsZero() || l.c.set.RenewAt < 0 {
		return
	}
	wall := l.wall()
	life := expires.Sub(wall)
	if life < shortLife {
		return // it has run out by our clock, which may be wrong; the hub judges by its own
	}
	early := fraction.Drawn(life/20, l.rand()) // of 5 %
	l.renewAt = wall.Add(fraction.Of(life, l.c.set.RenewAt) - early)
}

// replaceNow reports whether, and why, the live session is to be replaced at this moment.
func (l *loop) replaceNow(now time.Time) (Reason, bool) {
	switch at := l.renewalDue(now); {
	case l.c.reconnect.Swap(false):
		l.leaving, l.drainBy = Planned, now.Add(handlerTime)
	case !at.IsZero() && !now.Before(at):
		l.renew(now)
	case !l.renewBy.IsZero() && !now.Before(l.renewBy):
		l.tokenRenewed(time.Time{}, errNoRenewal, now)
	}
	if l.drainBy.IsZero() {
		return 0, false
	}
	busy := l.leaving == TokenRenewal && !l.c.box.idle()
	if x := l.c.features(); x != nil {
		busy = busy || x.busy()
	}
	return l.leaving, !busy || !now.Before(l.drainBy)
}

// renewalDue returns when to begin to replace the session, by the process's clock; zero: never, or
// it has begun.
func (l *loop) renewalDue(now time.Time) time.Time {
	if l.renewAt.IsZero() || !l.drainBy.IsZero() {
		return time.Time{}
	}
	return now.Add(l.renewAt.Sub(l.clock.wall))
}

// renew asks the session to renew its credentials in place.
func (l *loop) renew(now time.Time) {
	l.renewAt = time.Time{}
	l.renewBy = now.Add(l.c.set.AckTimeout)
	l.request = transport.Request{ID: renewID, Op: transport.OpRenew}
	l.live.Do(&l.request)
}

// tokenRenewed takes the session's answer. Without new credentials, for whatever reason, the
// session is replaced.
func (l *loop) tokenRenewed(expires time.Time, err error, now time.Time) {
	if l.renewBy.IsZero() {
		return // it came too late
	}
	l.renewBy = time.Time{}
	if t := l.c.set.Trace; t != nil && t.Renewed != nil && transport.KindOf(err) != transport.Unsupported {
		l.calls("Trace.Renewed")
		t.Renewed(expires, err)
		l.called()
	}
	if err == nil {
		l.planRenewal(expires)
		return
	}
	l.leaving, l.drainBy = TokenRenewal, now.Add(drainTime)
}

// replace goes on to a new connection after a healthy one was hung up.
func (l *loop) replace(reason Reason) phase {
	l.down(nil)
	l.publish(Status{State: DisconnectedRetrying, Reason: reason})
	l.publish(Status{State: DisconnectedRetrying, Reason: Connecting, Retry: l.retry})
	return connecting
}
