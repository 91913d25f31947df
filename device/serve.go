package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// begin opens the window for a connection that is up, and publishes the status.
func (l *loop) begin() {
	c := l.c
	info := l.conn.session.Info()
	l.conn.answers.timeout = c.set.AckTimeout
	if !c.set.ownAck {
		l.conn.answers.timeout = max(l.conn.answers.timeout, info.AckTimeout)
	}
	l.conn.encodes = info.Encodes
	c.queue.connect(l.beginTrial(l.conn.window(l.c.set.Window)))
	l.conn.answers.progressor, _ = l.conn.session.(transport.Progressor)
	l.conn.pinged = l.conn.upSince
	if x := c.features(); x != nil {
		x.begin(l.conn)
	}
	c.mu.Lock()
	c.reconnect.Store(false) // one that came during the attempt has what it wanted
	l.own.hangUp = l.worker.hangUp
	c.mu.Unlock()
	l.publishUp(l.conn.upSince)
}

// serve hands messages over until the session ends. It and the functions of an idle turn use little
// stack, so that the goroutine's stack stays at 2 KB.
func (l *loop) serve() phase {
	for {
		next, idle := l.turn()
		if next == connected {
			next = l.await(idle)
		}
		if next != connected {
			return next
		}
	}
}

// await handles the next event of the session; it waits for one if idle. It is separate from serve
// because its frame of 200 bytes should not be on the stack during a turn.
func (l *loop) await(idle bool) phase {
	if idle {
		select {
		case e := <-l.worker.events:
			return l.handleEvent(e)
		case <-l.c.wake:
			return connected
		case <-l.ctx.Done():
			return l.closeSession()
		}
	}
	select {
	case e := <-l.worker.events:
		return l.handleEvent(e)
	case <-l.ctx.Done():
		return l.closeSession()
	default:
		return connected
	}
}

// handleEvent handles an event of a session that is up.
func (l *loop) handleEvent(e event) phase {
	switch {
	case e.isEnd():
		return l.ended(e)
	case e.renewed != nil:
		l.tokenRenewed(*e.renewed, e.err, time.Now())
		return connected
	}
	if x := l.c.features(); x != nil {
		if failure := l.subscribed(x, e.err); failure != nil {
			return l.failSession(failure)
		}
	}
	return connected
}

// turn does everything that is due. It returns the next phase, and whether there was nothing to do;
// then it has armed the timer.
func (l *loop) turn() (next phase, idle bool) {
	now := time.Now()
	l.reportOutcomes(now)
	if x := l.c.features(); x != nil {
		l.serveFeatures(x, now)
		if l.conn.subs.overdue(now) {
			return l.failSession(timedOut(transport.OpSubscribe, transport.ScopeConnection, errNoGrant, nil)), false
		}
	}
	if l.clockJumped(now) > 0 {
		l.judgeLoss(nil, slotInFlight)
		return l.lost(ReasonClockJumped, errJumped, l.end()), false
	}
	if reason, yes := l.replaceNow(now); yes {
		return l.replace(l.end(), reason), false
	}
	if l.conn.answers.overdue(now, l.c.queue) {
		return l.failSession(timedOut(transport.OpRun, transport.ScopeConnection, errNoAck, nil)), false
	}
	if at := l.stableAt(); !at.IsZero() && !now.Before(at) {
		l.reportAttempt(nil, now)
	}
	l.endFlapping(now)
	l.ping(now)
	idle = l.handOver(now)
	if idle {
		l.timer.arm(now, l.due(now))
	}
	return connected, idle
}

// closeSession ends serve when the client closes. The session has ended or ends, by the same
// context, so it takes no results of handlers; Close has waited for those.
func (l *loop) closeSession() phase {
	l.down(l.end(), nil, errfilter.PaceNormal)
	return ended
}

// ended ends serve when the session ended by itself.
func (l *loop) ended(e event) phase {
	l.worker.ended()
	if l.conn.renewal.why == ReasonPlanned || l.hurries(time.Now()) { // Reconnect ended it, or would have
		return l.replace(l.settle(), ReasonPlanned)
	}
	l.over()
	l.judgeLoss(ofTransport(e.err), slotInFlight)
	return l.lost(ReasonConnectionLost, e.err, l.settle())
}

// failSession ends serve because the session failed.
func (l *loop) failSession(failure error) phase {
	l.over()
	l.judgeLoss(nil, slotInFlight)
	return l.lost(ReasonConnectionLost, failure, l.end())
}

// due returns when the loop must act next on an idle session. A time that has passed but waits for
// another event must not be a candidate, or the loop spins.
func (l *loop) due(now time.Time) time.Time {
	at := earlier(now.Add(clockCheck), l.conn.answers.check)
	switch {
	case l.drains(now): // no pause and no hold ends on this session
	case l.pause.running():
		at = earlier(at, l.pause.until)
	default:
		at = earlier(at, l.gate.until)
	}
	if now.Before(l.poison.quietUntil) {
		at = earlier(at, l.poison.quietUntil)
	}
	at = earlier(at, l.stableAt())
	at = earlier(at, l.conn.renewal.due(now, l.clock.wall))
	at = earlier(at, l.hurryAt())
	at = earlier(at, l.flappingEndsAt())
	at = earlier(at, l.conn.subs.due)
	at = earlier(at, l.pingDue())
	return earlier(at, l.expire(now))
}

// flappingEndsAt returns when a connection after flaps counts as stable, zero without flaps.
func (l *loop) flappingEndsAt() time.Time {
	if l.flaps.flaps == 0 {
		return time.Time{}
	}
	return l.lastsAt()
}

// endFlapping ends a series of flaps once a connection is stable, and publishes that if there were
// several.
func (l *loop) endFlapping(now time.Time) {
	if at := l.flappingEndsAt(); at.IsZero() || now.Before(at) {
		return
	}
	if l.flaps.over() {
		l.publishUp(time.Now())
	}
}

// stableAt returns when the attempt to connect can be reported as a success, zero if there is
// nothing to report.
func (l *loop) stableAt() time.Time {
	if !l.outage.series.inFlight {
		return time.Time{}
	}
	return l.lastsAt()
}

// lastsAt returns when the connection counts as stable. A connection that has messages in flight
// and has answered none gets until the next check for an overdue answer.
func (l *loop) lastsAt() time.Time {
	at := l.conn.upSince.Add(l.c.set.StableTime)
	if at.Before(l.conn.answers.check) && l.c.queue.unanswered(l.conn.upSince) {
		return l.conn.answers.check
	}
	return at
}

// ping requests a ping from the session when one is due, even on a busy connection.
func (l *loop) ping(now time.Time) {
	if at := l.pingDue(); at.IsZero() || now.Before(at) {
		return
	}
	l.conn.pinged = now
	l.conn.do(transport.Request{Op: transport.OpPing})
}

// pingDue returns when the next ping is due, zero for never.
func (l *loop) pingDue() time.Time {
	every := l.conn.session.Info().KeepAlive
	if every <= 0 {
		return time.Time{}
	}
	return l.conn.pinged.Add(every)
}
