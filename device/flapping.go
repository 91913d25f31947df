package device

// flapping looks for a pattern in connections that do not last. Loop only.
type flapping struct {
	flaps int
	// of all those flaps together
	acknowledged bool
	idle         bool   // each ended with nothing in flight
	same         bool   // each had the same message in front
	front        uint64 // its number
	size         int
	before       uint64 // acknowledged when the present session began
}

// evidence is what the outbox knows at the end of a session.
type evidence struct {
	acknowledged uint64 // in all, and cloud-to-device messages received
	inFlight     int
	front        uint64 // number of the oldest in flight
	size         int    // and its size
}

// enough is how many flaps make a pattern.
const enough = 3

// largeMessage is the size from which a message is suspected rather than a quota.
const largeMessage = 64 << 10

func (f *flapping) begin(e evidence) { f.before = e.acknowledged }

// end counts the loss of a session, unless the session was stable.
func (f *flapping) end(e evidence, stable bool) {
	if stable {
		*f = flapping{}
		return
	}
	acknowledged := e.acknowledged > f.before
	if f.flaps == 0 {
		f.acknowledged, f.idle, f.same = acknowledged, e.inFlight == 0, e.inFlight > 0
	} else {
		f.acknowledged = f.acknowledged || acknowledged
		f.idle = f.idle && e.inFlight == 0
		f.same = f.same && e.inFlight > 0 && e.front == f.front
	}
	f.front, f.size = e.front, e.size
	f.flaps++
}

// suspect returns the guess at the cause.
func (f *flapping) suspect() Suspect {
	switch {
	case f.flaps < enough:
		return NoSuspect
	case f.idle:
		return SecondDevice
	case f.acknowledged:
		return Unstable
	case f.same && f.size >= largeMessage:
		return BadMessage
	}
	return QuotaUsedUp
}

// evidence describes the outbox at this moment.
func (b *outbox) evidence() evidence {
	b.mu.Lock()
	e := evidence{acknowledged: b.totals.Acknowledged, inFlight: b.inFlight}
	for i := b.head; i != none; i = b.slots[i].next {
		if s := &b.slots[i]; s.state == slotInFlight {
			e.front, e.size = s.seq, int(s.size)
			break
		}
	}
	b.mu.Unlock()
	return e
}
