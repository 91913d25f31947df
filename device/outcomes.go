package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// A policy may learn how attempts to connect and messages ended (retrypolicy.Observer). The loop
// reports each try once. An attempt to connect has failed, or has succeeded when its connection was
// up for StableTime or ended as planned. A message was acknowledged or refused, or its connection
// was lost.

// outcome is how one or more messages ended.
type outcome struct {
	err   *transport.Error // nil: acknowledged
	retry int              // number of the try that ended, 0 for the first
	count int
	last  retrypolicy.Decision // the one that led to a retry
}

// watchOutcomes starts or stops the collection of outcomes for a new policy. It returns the rest
// for the previous policy: the outcomes not collected yet, and one for each message in flight,
// because that policy gets no later report about them.
func (b *outbox) watchOutcomes(watched bool) []outcome {
	b.mu.Lock()
	b.noteInFlightLocked(errReplaced)
	left := b.outcomes
	b.outcomes, b.watched = nil, watched
	b.watch++
	b.mu.Unlock()
	return left
}

// noteInFlightLocked records that all messages in flight ended with err.
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

// noteLocked records an outcome of slot s and pokes the loop for the first one. It joins the
// outcome with the previous one if both are first tries that ended alike. Messages sent under the
// previous policy are not reported.
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

// attempt returns a question about scope at this moment; the caller adds the failure.
func (l *loop) attempt(scope transport.Scope, now time.Time) retrypolicy.Attempt {
	return retrypolicy.Attempt{Scope: scope, Now: now, Key: l.c.creds.Host}
}

// reportOutcomes reports to the message policy how messages ended.
func (l *loop) reportOutcomes(now time.Time) {
	p := l.c.policies.Load()
	if p != l.observing {
		before := l.observing
		l.observing = p
		_, watched := isObserver(p.message)
		left := l.c.outbox.watchOutcomes(watched)
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
		a := l.attempt(transport.ScopeOperation, now)
		a.Retry, a.Count, a.Last = o.retry, o.count, o.last
		if o.err != nil {
			describeEnd(&a, o.err)
		}
		l.observe(observer, a)
	}
}

// describe adds a retryable failure to a question.
func describe(a *retrypolicy.Attempt, failure *transport.Error) {
	a.Err, a.Kind, a.After = failure, failure.Kind, failure.RetryAfter
}

// describeEnd adds a failure, which may be terminal, to a report for an observer.
func describeEnd(a *retrypolicy.Attempt, failure *transport.Error) {
	describe(a, failure)
	a.Terminal = !errfilter.Retryable(failure)
}

// reportAttempt reports once to the connection policy how the latest attempt to connect ended.
func (l *loop) reportAttempt(failure *transport.Error, now time.Time) {
	if l.unreported == nil {
		return
	}
	observer, ok := isObserver(l.unreported.connection)
	l.unreported = nil
	if !ok {
		return
	}
	a := l.attempt(transport.ScopeConnection, now)
	a.Retry, a.Last, a.Elapsed = l.retry, l.last, now.Sub(l.since)
	if failure != nil {
		describeEnd(&a, failure)
	}
	l.observe(observer, a)
	if failure == nil {
		l.last.Cost = 0 // the observer gave the charge back
	}
}

// stableAt returns when the attempt to connect can be reported as a success, zero if there is
// nothing to report.
func (l *loop) stableAt() time.Time {
	if l.unreported == nil {
		return time.Time{}
	}
	return l.lastsAt()
}
