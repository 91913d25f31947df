package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/transport"
)

const (
	// drainTime is how long a session that is being renewed waits for the answers to messages in
	// flight, so that nothing is sent or delivered twice.
	drainTime = 5 * time.Second
	// handlerTime is how long Reconnect waits for a running handler before it hangs up the session.
	// That handler may have called Reconnect.
	handlerTime = time.Second
)

// planRenewal sets when to renew the session's credentials, which expire at the given time. A
// source that returned the same token again, or failed for now, is asked once more after RenewAt of
// the remaining life, and so on; not before retryAfter, if the credentials last that long.
func (l *loop) planRenewal(expires time.Time, retryAfter time.Duration) {
	l.conn.renewal = renewal{expires: expires}
	if expires.IsZero() || l.c.set.RenewAt < 0 {
		return
	}
	wall := l.wall()
	life := expires.Sub(wall)
	if life < reconnect.ShortLife {
		return // expired by our clock, which may be wrong; the hub uses its own
	}
	in := max(reconnect.RenewIn(life, l.c.set.RenewAt, l.rand()), min(retryAfter, life-reconnect.ShortLife))
	l.conn.renewal.step, l.conn.renewal.at = renew, wall.Add(in)
}

// replaceNow does the step of the renewal that is due. It reports whether the connection must be
// replaced at this moment, and why.
func (l *loop) replaceNow(now time.Time) (Reason, bool) {
	r := &l.conn.renewal
	due := r.step != keep && !now.Before(r.due(now, l.clock.wall))
	switch {
	case l.hurries(now):
		at := now.Add(handlerTime)
		if r.step == replacing { // a further call does not postpone it
			at = earlier(at, r.at)
		}
		l.replaceBy(at, ReasonPlanned)
		due = !now.Before(at)
	case due && r.step == renew:
		l.renew(now)
	case due && r.step == renewing:
		l.tokenRenewed(time.Time{}, errNoRenewal, now)
		due = false
	}
	if r.step != replacing {
		return 0, false
	}
	busy := r.why == ReasonTokenRenewal && !l.c.queue.idle()
	if x := l.c.features(); x != nil {
		handlers, calls := x.busy()
		busy = busy || handlers || calls
	}
	return r.why, !busy || due
}

// drains reports whether the session gets nothing more, because it is about to be replaced. One
// whose token expires gets more while handlers run, which may wait for that; but not in the last
// second, which is for the answers.
func (l *loop) drains(now time.Time) bool {
	r := &l.conn.renewal
	if r.step != replacing || r.why != ReasonTokenRenewal || !now.Before(r.at.Add(-handlerTime)) {
		return r.step == replacing
	}
	handlers, _ := l.c.features().busy()
	return !handlers
}

// renew asks the session to renew its credentials in place.
func (l *loop) renew(now time.Time) {
	l.conn.renewal.step, l.conn.renewal.at = renewing, now.Add(l.c.set.AckTimeout)
	l.conn.do(transport.Request{ID: renewID, Op: transport.OpRenew})
}

// tokenRenewed handles the session's answer. A session without new credentials is replaced, but
// not while a further try may get some in time: the dial would fail for the same reason.
func (l *loop) tokenRenewed(expires time.Time, err error, now time.Time) {
	if l.conn.renewal.step != renewing {
		return // it came too late
	}
	if t := l.c.set.Trace; t != nil && t.Renewed != nil && transport.KindOf(err) != transport.Unsupported {
		l.calls("Trace.Renewed")
		t.Renewed(expires, err)
		l.called()
	}
	if err == nil {
		l.planRenewal(expires, 0)
		return
	}
	if errfilter.Retryable(err) {
		l.planRenewal(l.conn.renewal.expires, ofTransport(err).RetryAfter)
		if l.conn.renewal.step == renew {
			return
		}
	}
	l.replaceBy(now.Add(drainTime), ReasonTokenRenewal)
}

// replaceBy makes the loop hang up when nothing is in flight, or at the given time.
func (l *loop) replaceBy(at time.Time, why Reason) {
	l.conn.renewal = renewal{step: replacing, at: at, why: why}
	l.c.poke() // for a turn in which the features see it
}

// replace starts a new connection after k, a healthy one, was hung up.
func (l *loop) replace(k *connection, reason Reason) phase {
	l.down(k, nil, errfilter.PaceNormal)
	if l.ctx.Err() != nil {
		return ended
	}
	l.publish(Status{State: StateDisconnectedRetrying, Reason: reason})
	l.publish(Status{State: StateDisconnectedRetrying, Reason: ReasonConnecting, Retry: l.outage.retry})
	return connecting
}
