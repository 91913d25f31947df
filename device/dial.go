package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// connect makes one attempt to connect.
func (l *loop) connect() phase {
	c := l.c
	if p, ok := l.admitted(); !ok {
		return p
	}
	if d := c.set.Dials; d != nil && !d.enter(l) {
		l.reportAttempt(errClosed, time.Now())
		return ended
	}
	c.reconnect.Store(false)
	c.progress.Store(false)
	began := time.Now()
	l.clockJumped(began)
	l.clock.settle(l.wall(), began) // earlier jumps do not concern this session
	deadline := began.Add(c.set.DialTimeout)
	l.worker.begin(l)
	for {
		now := time.Now()
		if !now.Before(deadline) {
			l.end()
			return l.lost(ReasonAttemptFailed, timedOut(transport.OpDial, transport.ScopeConnection, errDialTimeout, nil), nil)
		}
		l.timer.arm(now, deadline, l.expire(now))
		select {
		case e := <-l.worker.events:
			switch {
			case e.session != nil:
				l.conn = &connection{session: e.session}
				if !l.subscribeAlways() {
					return l.connected(began)
				}
			case e.subscribed:
				if failure := l.subscribed(c.features(), e.err); failure != nil {
					l.end()
					return l.lost(ReasonAttemptFailed, failure, nil)
				}
				if !l.subscribeAlways() {
					return l.connected(began)
				}
			default:
				l.worker.ended()
				l.settle()
				return l.lost(ReasonAttemptFailed, e.err, nil)
			}
		case <-c.wake:
			if c.progress.Swap(false) {
				deadline = time.Now().Add(c.set.DialTimeout)
			}
		case <-l.ctx.Done():
			l.end()
			l.reportAttempt(errClosed, time.Now())
			return ended
		}
	}
}

// connected records that a session is up.
func (l *loop) connected(began time.Time) phase {
	info := l.conn.session.Info()
	l.conn.upSince = time.Now()
	l.outage.connected()
	l.flaps.begin(l.evidence())
	l.planRenewal(info.Expires, 0)
	if t := l.c.set.Trace; t != nil && t.Connected != nil {
		l.calls("Trace.Connected")
		t.Connected(info, l.conn.upSince.Sub(began))
		l.called()
	}
	return connected
}

// admitted asks the connection policy whether to connect, and waits as it says, plus a share of
// ReconnectSpread. If the policy refuses, OutageLimit would be exceeded, or the client closes, ok
// is false and p is the next phase.
func (l *loop) admitted() (p phase, ok bool) {
	c := l.c
	var until time.Time
	var asked *policies
	spread := time.Duration(-1) // not drawn yet
	var draw uint64             // of the wait; 0: not drawn yet
	for {
		if asked != c.policies.Load() {
			now := time.Now()
			l.beginSeries(&l.outage.series, transport.ScopeConnection)
			asked = l.outage.series.by
			if l.outage.series.main == nil {
				return connecting, true
			}
			a := l.attempt(transport.ScopeConnection, l.outage.retry, now)
			if draw == 0 {
				draw = l.rand()
			}
			a.Elapsed, a.Rand = now.Sub(l.outage.since), draw
			if l.outage.failure != nil {
				describe(&a, l.outage.failure)
			}
			d := l.admit(&l.outage.series, a)
			if d.Retry && d.Delay <= 0 {
				return connecting, true
			}
			if spread < 0 {
				spread = l.drawSpread()
			}
			if d.Delay = min(d.Delay, maxDelay-spread) + spread; d.Retry && c.set.OutageLimit > 0 &&
				d.Delay > c.set.OutageLimit-a.Elapsed {
				d = retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfTime}
			}
			if !d.Retry {
				l.endSeries(&l.outage.series)
				return l.giveUp(ReasonRetryExpired, refusedTry(transport.ScopeConnection, transport.OpDial, d,
					max(l.outage.retry-1, 0), a.Err)), false
			}
			at := now.Add(d.Delay)
			if at.Sub(until).Abs() >= reconnect.LeastDelay { // a program may set the same policy for each status
				l.publish(Status{State: StateDisconnectedRetrying, Reason: ReasonHeld, Retry: l.outage.retry,
					Delay: d.Delay, Err: a.Err})
			}
			until = at
		}
		switch l.sleep(until, time.Time{}, nil, nil) {
		case due:
			asked, draw = nil, 0 // ask again
		case closing:
			return ended, false
		case woken:
		}
	}
}
