package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// A policy may want to learn from outcomes (retrypolicy.Observer): how attempts to connect and
// messages ended. The loop tells it, each try once: an attempt to connect has failed, or has
// succeeded when its connection was up for StableTime or ended as planned; a message was
// acknowledged or refused, or its connection was lost.

// outcome is how some messages ended.
type outcome struct {
	err   *transport.Error // nil: acknowledged
	retry int              // number of the try that ended, 0 for the first
	count int
	last  retrypolicy.Decision // the one that led to a retry
}

// turnOver begins or ends the collection of outcomes for a new policy and returns those that are
// left for the one before: what was not collected, and what is in flight, of which that policy will
// not hear again.
func (b *outbox) turnOver(watched bool) []outcome {
	b.mu.Lock()
	b.noteInFlightLocked(errReplaced)
	left := b.outcomes
	b.outcomes, b.watched = nil, watched
	b.watch++
	b.mu.Unlock()
	return left
}

// noteInFlightLocked notes that what is in flight ended with err.
func (b *outbox) noteInFlightLocked(err *transport.Error) {
	if !b.watched {
		return
	}
	for i := b.head; i != none; i = b.slots[i].next {
		if s := &b.slots[i]; s.state == slotInFlight {
			b.noteLocked(s, err)
		}
	}
}

// noteLocked adds an outcome of slot s, joined with the one before it where both are first tries
// that ended alike, and pokes the loop for the first one. Messages sent under the previous policy
// are not reported.
func (b *outbox) noteLocked(s *slot, err *transport.Error) {
	if !b.watched || s.watch != b.watch {
		return
	}
	o := outcome{err: err, count: 1}
	if s.refusal != nil {
		o.retry, o.last = s.refusal.count, s.refusal.last
	}
	n := len(b.outcomes)
	if n == 0 {
		b.poke()
	} else if before := &b.outcomes[n-1]; o.retry == 0 && before.retry == 0 &&
		transport.KindOf(err) == transport.KindOf(before.err) && (err == nil) == (before.err == nil) {
		before.count++
		return
	}
	b.outcomes = append(b.outcomes, o)
}

// collect returns the outcomes since it was called last, in order; spare is where further ones go.
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

// attempt is a question about scope at this moment; the caller adds what it is about.
func (l *loop) attempt(scope transport.Scope, now time.Time) retrypolicy.Attempt {
	return retrypolicy.Attempt{Scope: scope, Now: now, Key: l.c.creds.Host}
}

// reportOutcomes tells the message policy how messages ended.
func (l *loop) reportOutcomes(now time.Time) {
	p := l.c.policies.Load()
	if p != l.observing {
		before := l.observing
		l.observing = p
		_, watched := isObserver(p.message)
		left := l.c.outbox.turnOver(watched)
		if before != nil {
			if observer, ok := isObserver(before.message); ok {
				l.report(observer, left, now)
			}
		}
	}
	if observer, ok := isObserver(p.message); ok {
		if seen := l.c.outbox.collect(l.spare); seen != nil {
			l.report(observer, seen, now)
			clear(seen)
			l.spare = seen
		}
	}
}

func (l *loop) report(observer retrypolicy.Observer, seen []outcome, now time.Time) {
	for _, o := range seen {
		a := l.attempt(transport.Operation, now)
		a.Retry, a.Count, a.Last = o.retry, o.count, o.last
		if o.err != nil {
			describeEnd(&a, o.err)
		}
		l.observe(observer, a)
	}
}

// describe adds a failure that is retryable to a question.
func describe(a *retrypolicy.Attempt, failure *transport.Error) {
	a.Err, a.Kind, a.After = failure, failure.Kind, failure.RetryAfter
}

// describeEnd adds a failure, which may be terminal, to what an observer is told.
func describeEnd(a *retrypolicy.Attempt, failure *transport.Error) {
	describe(a, failure)
	a.Terminal = !errfilter.Retryable(failure)
}

// reportAttempt tells the connection policy how the latest attempt to connect ended, unless it was
// told.
func (l *loop) reportAttempt(failure *transport.Error, now time.Time) {
	if l.unreported == nil {
		return
	}
	observer, ok := isObserver(l.unreported.connection)
	l.unreported = nil
	if !ok {
		return
	}
	a := l.attempt(transport.Connection, now)
	a.Retry, a.Last, a.Elapsed = l.retry, l.last, now.Sub(l.since)
	if failure != nil {
		describeEnd(&a, failure)
	}
	l.observe(observer, a)
	if failure == nil {
		l.last.Cost = 0 // it was given back
	}
}

// stableAt returns when the connection policy can be told that the attempt to connect succeeded,
// zero if there is nothing to tell.
func (l *loop) stableAt() time.Time {
	if l.unreported == nil {
		return time.Time{}
	}
	return l.lastsAt()
}
