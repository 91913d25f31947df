package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// A policy with memory learns how attempts to connect and messages ended. The loop reports each
// attempt once. An attempt to connect has failed, or has succeeded when its connection was up for
// StableTime or ended as planned. A message was acknowledged or refused, or its connection was
// lost.

// outcome is what the loop has to tell the series of a message.
type outcome struct {
	series *series
	ended  bool             // an attempt ended, with err
	err    *transport.Error // nil: acknowledged
	retry  int              // number of the attempt, 0 for the first
	over   bool             // the series ends
}

// noteLocked records that the attempt of slot s ended with err. over ends the series: the message
// leaves the outbox, or begins a new one.
func (b *outbox) noteLocked(s *slot, err *transport.Error, over bool) {
	if s.series == nil {
		return
	}
	o := outcome{series: s.series, ended: true, err: err, over: over}
	if s.refusal != nil {
		o.retry = s.refusal.count
	}
	if over {
		s.series = nil
	}
	b.tellLocked(o)
}

// forgetLocked records that the series of slot s ends.
func (b *outbox) forgetLocked(s *slot) {
	if s.series != nil {
		b.tellLocked(outcome{series: s.series, over: true})
		s.series = nil
	}
}

func (b *outbox) tellLocked(o outcome) {
	if len(b.outcomes) == 0 {
		b.poke()
	}
	b.outcomes = append(b.outcomes, o)
}

// forget ends the series of all messages.
func (b *outbox) forget() {
	b.mu.Lock()
	for i := b.head; i != none; i = b.slots[i].next {
		b.forgetLocked(&b.slots[i])
	}
	b.mu.Unlock()
}

// remember keeps the series of a message.
func (b *outbox) remember(tag uint16, seq uint64, s *series) {
	b.mu.Lock()
	if to := &b.slots[tag]; to.seq == seq && to.state != slotFree {
		to.series = s
	} else {
		b.tellLocked(outcome{series: s, over: true})
	}
	b.mu.Unlock()
}

// collect returns the outcomes since its last call, in order. Further ones go to spare.
func (b *outbox) collect(spare []outcome) []outcome {
	b.mu.Lock()
	seen := b.outcomes
	if len(seen) == 0 {
		seen = nil
	} else {
		b.outcomes = spare[:0]
	}
	b.mu.Unlock()
	return seen
}

// reportOutcomes reports to the series of messages how they ended.
func (l *loop) reportOutcomes(now time.Time) {
	seen := l.c.outbox.collect(l.spare)
	if seen == nil {
		return
	}
	for _, o := range seen {
		if o.ended {
			l.report(o.series, l.attempt(transport.ScopeOperation, o.retry, now), o.err)
		}
		if o.over {
			l.endSeries(o.series)
		}
	}
	clear(seen)
	l.spare = seen
}

// reportAttempt reports once to the connection policy how the latest attempt to connect ended.
func (l *loop) reportAttempt(failure *transport.Error, now time.Time) {
	a := l.attempt(transport.ScopeConnection, l.outage.retry, now)
	a.Elapsed = now.Sub(l.outage.since)
	l.report(&l.outage.series, a, failure)
}

// stableAt returns when the attempt to connect can be reported as a success, zero if there is
// nothing to report.
func (l *loop) stableAt() time.Time {
	if !l.outage.series.inFlight {
		return time.Time{}
	}
	return l.lastsAt()
}
