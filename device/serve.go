package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// end hangs up and joins the session's goroutine, and queues again what was in flight. It returns
// the connection, nil if there was none yet.
func (l *loop) end() *connection {
	l.hangUp()
	for {
		if e := <-l.events; e.isEnd() {
			break
		}
	}
	l.joining = false
	return l.settle()
}

// settle cleans up after the session's goroutine has ended, and returns its connection, nil if
// there was none yet.
func (l *loop) settle() *connection {
	k := l.conn
	l.conn = nil
	for len(l.events) > 0 { // what the session answered inside Do when it had ended already
		<-l.events
	}
	if l.pause.until.IsZero() {
		l.refused(false) // a refusal that arrives with the disconnect is applied first
	}
	l.c.outbox.rewind()
	if x := l.c.features(); x != nil {
		x.over(l)
	}
	l.reportOutcomes(time.Now())
	return k
}

// begin opens the window for a connection that is up, and publishes that.
func (l *loop) begin() {
	c := l.c
	info := l.conn.session.Info()
	window := c.set.Window
	if info.Window > 0 {
		window = min(window, info.Window)
	}
	l.conn.ackTimeout = c.set.AckTimeout
	if !c.set.ownAck {
		l.conn.ackTimeout = max(l.conn.ackTimeout, info.AckTimeout)
	}
	c.outbox.connect(window)
	c.reconnect.Store(false) // one that came during the attempt has what it wanted
	l.conn.progressor, _ = l.conn.session.(transport.Progressor)
	l.conn.pinged = l.conn.upSince
	if x := c.features(); x != nil {
		x.begin()
	}
	if l.pause.until.IsZero() {
		l.publishConnected()
	} else {
		l.publishPause(l.conn.upSince)
	}
}

// serve hands messages over until the session ends. Here and in what it calls while nothing happens
// little is put on the stack, so that it stays at 2 KB.
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

// await takes what happens to the session, and waits for it if idle. Otherwise there may be more to
// send. It is apart from serve for its frame of 200 bytes, which is not on the stack during a turn.
func (l *loop) await(idle bool) phase {
	if idle {
		select {
		case e := <-l.events:
			return l.heard(e)
		case <-l.c.wake:
			return connected
		case <-l.ctx.Done():
			return l.leave()
		}
	}
	select {
	case e := <-l.events:
		return l.heard(e)
	case <-l.ctx.Done():
		return l.leave()
	default:
		return connected
	}
}

// heard takes what a session that is up reports.
func (l *loop) heard(e event) phase {
	switch {
	case e.isEnd():
		return l.ended(e)
	case e.renewed:
		l.tokenRenewed(e.expires, e.err, time.Now())
		return connected
	}
	if x := l.c.features(); x != nil {
		if failure := l.subscribed(x, e.err); failure != nil {
			return l.cut(failure)
		}
	}
	return connected
}

// turn does what is to be done now. It returns the phase to go on to, and whether there was nothing
// to do; then the timer is armed for when there is.
func (l *loop) turn() (next phase, idle bool) {
	now := time.Now()
	l.reportOutcomes(now)
	if x := l.c.features(); x != nil {
		l.serveFeatures(x, now)
		if l.ungranted(now) {
			return l.cut(timedOut(transport.OpSubscribe, transport.Connection, errNoGrant, nil)), false
		}
	}
	if l.clockJumped(now) > 0 {
		return l.lost(ClockJumped, errJumped, l.end()), false
	}
	if reason, yes := l.replaceNow(now); yes {
		return l.replace(l.end(), reason), false
	}
	if l.overdue(now) {
		return l.cut(timedOut(transport.OpRun, transport.Connection, errNoAck, nil)), false
	}
	if at := l.stableAt(); !at.IsZero() && !now.Before(at) {
		l.reportAttempt(nil, now)
	}
	l.calmDown(now)
	l.ping(now)
	idle = l.handOver(now)
	if idle {
		l.arm(now, l.due(now))
	}
	return connected, idle
}

// leave is serve's way out when the client closes.
func (l *loop) leave() phase {
	if x := l.c.features(); x != nil {
		l.serveFeatures(x, time.Now())
	}
	l.down(l.end(), nil, errfilter.Normal)
	return ended
}

// ended is serve's way out when the session ended by itself.
func (l *loop) ended(e event) phase {
	l.joining = false
	l.hangUp()
	l.over()
	return l.lost(ConnectionLost, e.err, l.settle())
}

// cut is serve's way out when the session is not good anymore.
func (l *loop) cut(failure error) phase {
	l.over()
	return l.lost(ConnectionLost, failure, l.end())
}
