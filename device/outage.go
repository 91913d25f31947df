package device

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// lost handles the end of connection k, or of an attempt, for which k is nil: it asks the filter
// and prepares the question to the policy.
func (l *loop) lost(reason Reason, err error, k *connection) phase {
	err = l.damage.Judge(err)
	failure, wasUp := ofTransport(err), k != nil
	if !wasUp {
		failure = l.clockAtFault(failure)
	}
	rule := errfilter.Of(failure)
	if rule.Kind == transport.Cancelled && l.ctx.Err() == nil {
		// A context of the transport or of a callback ended, not the client's: a time-out like others.
		failure = &transport.Error{Kind: transport.Timeout, Scope: failure.Scope, Op: failure.Op, Proto: failure.Proto,
			Err: errors.New(failure.Error())}
		rule = errfilter.Of(failure)
	}
	if l.ctx.Err() != nil { // the cause is the end of the loop's context
		if wasUp {
			l.down(k, nil, errfilter.PaceNormal)
		}
		l.reportAttempt(errClosed, time.Now())
		return ended
	}
	var paid time.Duration
	if wasUp {
		paid = l.down(k, err, rule.Pace)
	}
	if failure.RetryAfter > 0 { // the service asked for a pause
		paid = 0
	}
	l.flaps.name(failure, wasUp)
	now := time.Now()
	l.reportAttempt(failure, now)
	l.reason, l.failure = reason, failure
	if !rule.Retry {
		stale := wasUp || l.c.creds.Token != nil || l.c.creds.Sign != nil && l.clockJumped(now) != 0
		if failure.Kind != transport.Unauthorized || l.renewed || l.c.fixed.Load() || !stale {
			return l.giveUp(ReasonNotRetryable, failure)
		}
		// The token may be the cause: it expired during a good session, its source returned an old one,
		// or the clock was set since it was signed. The next dial requests a fresh one, once.
		l.renewed = true
		l.retry++
		l.publishOutage(reason, 0, failure)
		return l.again()
	}
	l.retry++
	l.outage = &question{
		attempt: l.attempt(transport.ScopeConnection, l.retry, now),
		failure: failure, began: now, paid: paid,
	}
	a := &l.outage.attempt
	a.Elapsed, a.Rand = now.Sub(l.since), l.rand()
	describe(a, failure)
	l.spread = l.drawSpread()
	return waiting
}

// ofTransport returns err as a *transport.Error. An error of another type counts as the loss of the
// connection.
func ofTransport(err error) *transport.Error {
	if failure := transport.Find(err); failure != nil {
		return failure
	}
	return &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection, Op: transport.OpRun, Err: err}
}

func (l *loop) drawSpread() time.Duration {
	most := reconnect.MostSpread(l.c.set.ReconnectSpread, l.retry)
	if most <= 0 {
		return 0
	}
	return reconnect.Spread(most, l.rand())
}

// ask puts q to the current policies, in series s. extra is added to the delay of a retry.
func (l *loop) ask(q *question, s *series, extra time.Duration) retrypolicy.Decision {
	l.beginSeries(s, q.attempt.Scope)
	q.askedOf = s.by
	d := l.decide(s, q.attempt)
	if d.Retry && d.Delay <= maxDelay-extra {
		d.Delay += extra
	}
	if t := l.c.set.Trace; t != nil && t.Decision != nil {
		l.calls("Trace.Decision")
		t.Decision(q.attempt, d)
		l.called()
	}
	return d
}

const maxDelay = time.Duration(1<<63 - 1)

func (l *loop) publishOutage(reason Reason, delay time.Duration, failure *transport.Error) {
	l.publish(Status{State: StateDisconnectedRetrying, Reason: reason, Retry: l.retry, Delay: delay, Err: failure})
}

// wait asks the policy about the outage and sleeps for the delay.
func (l *loop) wait() phase {
	c := l.c
	var until time.Time
	passed, early := l.outage.failure.Passed, false
	for {
		if c.policies.Load() != l.outage.askedOf {
			d := l.ask(l.outage, &l.series, l.spread)
			delay := max(l.spread, d.Delay-l.outage.paid)
			limit := c.set.OutageLimit
			if d.Retry && limit > 0 && delay > limit-l.outage.attempt.Elapsed {
				d = retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfTime}
			}
			if !d.Retry {
				l.endSeries(&l.series)
				return l.giveUp(ReasonRetryExpired, retriesEnded(l.outage.failure, d.Reason, l.retry-1))
			}
			until = l.outage.began.Add(delay)
			l.publishOutage(l.reason, delay, l.outage.failure)
			l.delay = d.Delay - l.spread
		}
		select {
		case <-passed:
			passed, early = nil, true
		default:
		}
		if early { // cut the policy's delay short, but keep the spread
			until = earlier(until, l.outage.began.Add(l.spread))
		}
		switch l.sleep(until, l.outage.failure, passed) {
		case due:
			return l.again()
		case closing:
			return ended
		case woken:
		}
	}
}

// again starts the next attempt.
func (l *loop) again() phase {
	l.publish(Status{State: StateDisconnectedRetrying, Reason: ReasonConnecting, Retry: l.retry})
	return connecting
}

// giveUp makes the client Disconnected, or starts over after TryAgainAfter if that is set. Enqueued
// messages stay for the next Open; Sends fail with the failure.
func (l *loop) giveUp(reason Reason, failure *transport.Error) phase {
	c := l.c
	if c.set.TryAgainAfter > 0 {
		return l.tryAgainLater(reason, failure)
	}
	l.disconnect(reason, failure)
	return ended
}

// disconnect makes the client Disconnected.
func (l *loop) disconnect(reason Reason, failure *transport.Error) {
	c := l.c
	c.mu.Lock()
	if !l.own.over {
		l.own.over, l.own.err = true, failure
		c.publishLocked(Status{State: StateDisconnected, Reason: reason, Retry: l.retry, Err: failure, Flaps: l.flaps.flaps,
			Suspect: l.flaps.suspect()})
		c.halt(failure)
	}
	c.mu.Unlock()
}

// tryAgainLater waits for TryAgainAfter and starts from scratch.
func (l *loop) tryAgainLater(reason Reason, failure *transport.Error) phase {
	c := l.c
	delay := max(c.set.TryAgainAfter, min(failure.RetryAfter, times.MaxRetryAfter)) + l.drawSpread()
	l.publishOutage(reason, delay, failure)
	until := time.Now().Add(delay)
	for {
		switch l.sleep(until, failure, nil) {
		case due:
			l.retry, l.delay, l.renewed, l.since = 0, 0, false, time.Now()
			l.damage = errfilter.Damage{}
			return l.again()
		case closing:
			return ended
		case woken:
		}
	}
}
