package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/transport"
)

// flapping detects a pattern in connections that do not last. Loop only.
type flapping struct {
	flaps int
	named Suspect // the cause that the peer named, at the latest loss that had one
	seen  bool    // there was a flap without evidence.quiet
	// The following describe all flaps of the series, except those with evidence.quiet.
	acknowledged bool
	idle         bool   // each ended with nothing in flight
	same         bool   // each had the same oldest message in flight
	front        uint64 // that message's number
	size         int
	before       uint64 // evidence.acknowledged when the current session began
}

// evidence is the state of the queue at the end of a session.
type evidence struct {
	acknowledged uint64 // total, plus the cloud-to-device messages received
	inFlight     int
	front        uint64 // number of the oldest in flight
	size         int    // and its size
	handed       time.Time
	overtaken    bool   // a message was acknowledged after it was handed over
	quiet        bool   // nothing was sent because a message is suspected, see poison
	newest       uint64 // number of the newest in flight
}

// enough is the number of flaps that make a pattern.
const enough = 3

// largeMessage is the size from which a message, not a quota, is suspected.
const largeMessage = 64 << 10

func (f *flapping) begin(e evidence) {
	f.before = e.acknowledged
	if f.flaps == 0 {
		f.named = SuspectNone
	}
}

// name records the cause that a failure names. An attempt that fails for another reason ends what
// was known of the connections before.
func (f *flapping) name(failure *transport.Error, wasUp bool) {
	named := SuspectNone
	switch {
	case errchain.Has(failure, transport.ErrTakenOver):
		named = SuspectSecondDevice
	case failure.Kind == transport.Quota || failure.Kind == transport.Throttled:
		named = SuspectQuotaUsedUp
	case wasUp:
		return
	}
	f.named = named
}

// over ends the series on a connection that is stable, and reports whether there were several
// flaps.
func (f *flapping) over() (several bool) {
	several = f.flaps > 1
	*f = flapping{before: f.before}
	return several
}

// end counts the loss of a session, unless the session was stable.
func (f *flapping) end(e evidence, stable bool) {
	if stable {
		*f = flapping{}
		return
	}
	acknowledged := e.acknowledged > f.before
	f.acknowledged = f.acknowledged || acknowledged
	f.flaps++
	if e.quiet && f.seen {
		return // that nothing was in flight says nothing
	}
	first := !f.seen
	f.idle = (first || f.idle) && e.inFlight == 0
	f.same = (first || f.same && e.front == f.front) && e.inFlight > 0
	f.front, f.size, f.seen = e.front, e.size, !e.quiet
}

// suspect returns the likely cause.
func (f *flapping) suspect() Suspect {
	switch {
	case f.named != SuspectNone:
		return f.named
	case f.flaps < enough:
		return SuspectNone
	case f.idle:
		return SuspectSecondDevice
	case f.acknowledged:
		return SuspectUnstable
	case f.same && f.size >= largeMessage:
		return SuspectBadMessage
	}
	return SuspectQuotaUsedUp
}

// evidence describes the queue at this moment.
func (q *queue) evidence() evidence {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := evidence{acknowledged: q.totals.acknowledged, inFlight: q.inFlight}
	for i := q.head; i != none; i = q.slots[i].next {
		if s := &q.slots[i]; s.state == slotInFlight {
			if e.front == 0 {
				e.front, e.size, e.handed = s.seq, int(s.size), q.base.Add(s.handed)
				e.overtaken = uint32(q.totals.acknowledged) != s.before
			}
			e.newest = s.seq
		}
	}
	return e
}

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
	if l.flaps.over() {
		l.publishUp(time.Now())
	}
}

// over records what is in flight when a session is lost. It must be called before the queue is
// rewound.
func (l *loop) over() {
	e := l.evidence()
	e.quiet = l.poison.suspected() && time.Now().Before(l.poison.quietUntil)
	l.flaps.end(e, l.stable(l.conn))
}

func (l *loop) evidence() evidence {
	e := l.c.queue.evidence()
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
		l.outage.forget()
		l.flaps = flapping{}
	case l.useful(k, pace):
		l.outage.countAnew()
		paid = k.workedFor()
	}
	l.outage.since = time.Now()
	return paid
}

// stableAt returns when the attempt to connect can be reported as a success, zero if there is
// nothing to report.
func (l *loop) stableAt() time.Time {
	if !l.outage.series.inFlight {
		return time.Time{}
	}
	return l.lastsAt()
}
