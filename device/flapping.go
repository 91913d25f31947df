package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
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

// evidence is the state of the outbox at the end of a session.
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

// evidence describes the outbox at this moment.
func (b *outbox) evidence() evidence {
	b.mu.Lock()
	e := evidence{acknowledged: b.totals.acknowledged, inFlight: b.inFlight}
	for i := b.head; i != none; i = b.slots[i].next {
		if s := &b.slots[i]; s.state == slotInFlight {
			if e.front == 0 {
				e.front, e.size, e.handed = s.seq, int(s.size), b.base.Add(s.handed)
				e.overtaken = uint32(b.totals.acknowledged) != s.before
			}
			e.newest = s.seq
		}
	}
	b.mu.Unlock()
	return e
}
