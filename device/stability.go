package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// A connection that does not last is a flap. After a flap the back-off continues; a stable or
// useful connection resets it.

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
	several := l.flaps.flaps > 1
	l.flaps = flapping{before: l.flaps.before}
	if !several {
		return
	}
	if l.pause.until.IsZero() {
		l.publishConnected()
	} else {
		l.publishPause(time.Now())
	}
}

// over records what is in flight when a session is lost. It must be called before the outbox is
// rewound.
func (l *loop) over() {
	l.flaps.end(l.evidence(), l.stable(l.conn))
}

func (l *loop) evidence() evidence {
	e := l.c.outbox.evidence()
	if x := l.c.features(); x != nil {
		e.acknowledged += x.received()
	}
	return e
}

const (
	// usefulTime is the minimum uptime of a useful connection. It limits how often the client dials a
	// peer that acknowledges a message and hangs up.
	usefulTime = 500 * time.Millisecond
	// usefulShare is the minimum ratio of a useful connection's uptime to the delay before it.
	usefulShare = 5
)

// useful reports whether connection k made progress although it was not stable: a message was
// acknowledged or received on it, and it was up for much longer than the delay before it. A
// connection that ended with a slow pace (errfilter.Slow) is not useful, so the delay stays.
func (l *loop) useful(k *connection, pace errfilter.Pace) bool {
	up := k.workedFor()
	return up >= usefulTime && up/usefulShare >= l.last.Delay && l.evidence().acknowledged > l.flaps.before &&
		pace == errfilter.Normal
}

// down records the end of connection k, because of err or as planned. An outage begins, and the
// count of retries is reset if the connection was stable or useful. pace belongs to the rule for
// err.
func (l *loop) down(k *connection, err error, pace errfilter.Pace) {
	if t := l.c.set.Trace; t != nil && t.SessionEnd != nil {
		l.calls("Trace.SessionEnd")
		t.SessionEnd(err, time.Since(k.upSince))
		l.called()
	}
	var failure *transport.Error
	if err != nil && !l.stable(k) {
		failure = ofTransport(err)
	}
	l.reportAttempt(failure, time.Now())
	switch {
	case l.stable(k):
		l.retry, l.last, l.renewed, l.flaps = 0, retrypolicy.Decision{}, false, flapping{}
	case l.useful(k, pace):
		l.retry, l.last = 0, retrypolicy.Decision{}
	}
	l.since = time.Now()
}
