package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
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
	e := l.evidence()
	e.quiet = l.poison.suspected() && time.Now().Before(l.poison.quietUntil)
	l.flaps.end(e, l.stable(l.conn))
}

func (l *loop) evidence() evidence {
	e := l.c.outbox.evidence()
	if x := l.c.features(); x != nil {
		e.acknowledged += x.received()
	}
	return e
}

// useful reports whether connection k was worth its cost although it was not stable; see
// reconnect.Useful.
func (l *loop) useful(k *connection, pace errfilter.Pace) bool {
	came := l.evidence().acknowledged - l.flaps.before
	return reconnect.Useful(k.workedFor(), l.outage.delay, came, pace)
}

// down records the end of connection k, because of err or as planned. An outage begins, and the
// count of retries is reset if the connection was stable or useful. paid is the time that counts
// toward the next delay. pace belongs to the rule for err.
func (l *loop) down(k *connection, err error, pace errfilter.Pace) (paid time.Duration) {
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
		l.outage.countAnew()
		l.outage.renewed, l.flaps = false, flapping{}
	case l.useful(k, pace):
		l.outage.countAnew()
		paid = k.workedFor()
	}
	l.outage.since = time.Now()
	return paid
}
