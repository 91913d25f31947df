package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// A policy may want to learn from outcomes (retrypolicy.Observer): how attempts to connect and messages ended. The loop tells it, each try once: an attempt to
// connect has failed, or has succeeded when its connection was up for StableTime or ended as planned; a message was acknowledged or refused, or its connection was lost.

// outcome is how some messages ended.
type outcome struct {
	err   *transport.Error // nil: acknowledged
	retry int              // number of the try that ended, 0 for the first
	count int
	last  retrypolicy.Decision // the one that led to a retry
}

// watch begins or ends the collection of outcomes.
func (b *outbox) watch(on bool) {
	b.mu.Lock()
	b.watched = on
	b.outcomes = b.outcomes[:0]
	b.mu.Unlock()
}

// note adds an outcome of slot s, joined with the one before it where both are first tries that ended alike, and pokes the loop for the first one.
func (b *outbox) note(s *slot, err *transport.Error) {
	if !b.watched {
		return
	}
	o := outcome{err: err, count: 1}
	if s.refusal != nil {
		o.retry, o.last = s.refusal.count, s.refusal.last
	}
	n := len(b.outcomes)
	if n == 0 {
		b.poke()
	} else if before := &b.outcomes[n-1]; o.retry == 0 && before.retry == 0 && transport.KindOf(err) == transport.KindOf(before.err) && (err == nil) == (before.err == nil) {
		before.count++
		return
	}
	b.outcomes = append(b.outcomes, o)
}

// collect returns the outcomes since it was called last, in order; spare is where further ones go.
func (b *outbox) collect(spare []outcome) []outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.outcomes) == 0 {
		return nil
	}
	seen := b.outcomes
	b.outcomes = spare[:0]
	return seen
}

// attempt is a question about scope at this moment; the caller adds what it is about.
func (l *loop) attempt(scope transport.Scope, now time.Time) retrypolicy.Attempt {
	return retrypolicy.Attempt{Scope: scope, Now: now, Key: l.c.creds.Host}
}

// learn tells the message policy how messages ended.
func (l *loop) learn(now time.Time) {
	p := l.c.policies.Load()
	if p != l.taught {
		l.teach(p, now)
	}
	if eye, ok := isObserver(p.message); ok {
		l.report(eye, now)
	}
}

// teach changes the policy that learns. The one before is told that what is in flight was given up, for nobody will tell it more.
func (l *loop) teach(p *policies, now time.Time) {
	if l.taught != nil {
		if eye, ok := isObserver(l.taught.message); ok {
			l.report(eye, now)
			l.abandon(eye, now, l.c.box.stats().InFlight, errReplaced)
		}
	}
	l.taught = p
	_, watched := isObserver(p.message)
	l.c.box.watch(watched)
}

func (l *loop) report(eye retrypolicy.Observer, now time.Time) {
	seen := l.c.box.collect(l.spare)
	for _, o := range seen {
		a := l.attempt(transport.Operation, now)
		a.Retry, a.Count, a.Last = o.retry, o.count, o.last
		if o.err != nil {
			describe(&a, o.err)
		}
		eye.Observe(a)
	}
	if seen != nil {
		clear(seen)
		l.spare = seen
	}
}

// abandon tells eye of n messages whose outcome nobody will learn.
func (l *loop) abandon(eye retrypolicy.Observer, now time.Time, n int, err *transport.Error) {
	if n == 0 {
		return
	}
	a := l.attempt(transport.Operation, now)
	a.Count = n
	describe(&a, err)
	eye.Observe(a)
}

// describe adds a failure to a question.
func describe(a *retrypolicy.Attempt, failure *transport.Error) {
	a.Err, a.Kind, a.After, a.Terminal = failure, failure.Kind, failure.RetryAfter, !errfilter.Retryable(failure)
}

// tried tells the connection policy how the latest attempt to connect ended, unless it was told.
func (l *loop) tried(failure *transport.Error, now time.Time) {
	if l.untold == nil {
		return
	}
	eye, ok := isObserver(l.untold.connection)
	l.untold = nil
	if !ok {
		return
	}
	a := l.attempt(transport.Connection, now)
	a.Retry, a.Last, a.Elapsed = l.retry, l.last, now.Sub(l.since)
	if failure != nil {
		describe(&a, failure)
	}
	eye.Observe(a)
}

// stableAt returns when the connection policy can be told that the attempt to connect succeeded, zero if there is nothing to tell.
func (l *loop) stableAt() time.Time {
	if l.untold == nil {
		return time.Time{}
	}
	return l.upSince.Add(l.c.set.StableTime)
}
