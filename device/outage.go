package device

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// outage is the time without a connection, and what must be known of it until a connection was
// stable or useful. Loop only.
type outage struct {
	since time.Time // when it began
	retry int       // number of the latest retry
	// delay is the policy's delay before the latest attempt.
	delay   time.Duration
	series  series           // of questions to the policy
	renewed bool             // refused credentials were already retried with a fresh token
	damage  errfilter.Damage // consecutive failures that may be damage in transit

	// Of the latest failure of a connection, nil without one.
	failure *transport.Error
	reason  Reason
	// question is the failure that the latest wait for an attempt was about, and spread the random
	// part of that wait.
	question *question
	spread   time.Duration
}

// countAnew makes the next retry the first one.
func (o *outage) countAnew() { o.retry, o.delay = 0, 0 }

// begin begins an outage, and startOver one that knows nothing of the attempts before.
func (o *outage) begin(now time.Time) { o.since = now }

func (o *outage) startOver(now time.Time) {
	o.forget()
	o.damage = errfilter.Damage{}
	o.begin(now)
}

// fail records a failure of a connection or attempt.
func (o *outage) fail(reason Reason, failure *transport.Error) { o.reason, o.failure = reason, failure }

// next counts a retry and returns its number.
func (o *outage) next() int {
	o.retry++
	return o.retry
}

// ask prepares a question to the policy, which the loop waits for.
func (o *outage) ask(q *question, spread time.Duration) { o.question, o.spread = q, spread }

// forget ends what is remembered until a connection was stable.
func (o *outage) forget() {
	o.countAnew()
	o.renewed, o.failure = false, nil
}

// connected ends the count of damage.
func (o *outage) connected() { o.damage = errfilter.Damage{} }

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
	acknowledged uint64 // total confirmed, plus the cloud-to-device messages settled
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
	case errors.Is(failure, transport.ErrTakenOver):
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
