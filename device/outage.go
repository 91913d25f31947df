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

// startOver begins an outage that knows nothing of the attempts before.
func (o *outage) startOver(now time.Time) {
	o.forget()
	o.damage, o.since = errfilter.Damage{}, now
}

// forget ends what is remembered until a connection was stable.
func (o *outage) forget() {
	o.countAnew()
	o.renewed = false
}

// connected ends the count of damage.
func (o *outage) connected() { o.damage = errfilter.Damage{} }

// lost handles the end of connection k, or of an attempt, for which k is nil: it asks the filter
// and prepares the question to the policy.
func (l *loop) lost(reason Reason, err error, k *connection) phase {
	err = l.outage.damage.Judge(err)
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
	l.outage.reason, l.outage.failure = reason, failure
	if !rule.Retry {
		stale := wasUp || l.c.creds.Token != nil || l.c.creds.Sign != nil && l.clockJumped(now) != 0
		if failure.Kind != transport.Unauthorized || l.outage.renewed || l.c.fixed.Load() || !stale {
			return l.giveUp(ReasonNotRetryable, failure)
		}
		// The token may be the cause: it expired during a good session, its source returned an old one,
		// or the clock was set since it was signed. The next dial requests a fresh one, once.
		l.outage.renewed = true
		l.outage.retry++
		l.publishOutage(reason, 0, failure)
		return l.again()
	}
	l.outage.retry++
	l.outage.question = &question{
		attempt: l.attempt(transport.ScopeConnection, l.outage.retry, now),
		failure: failure, began: now, paid: paid,
	}
	a := &l.outage.question.attempt
	a.Elapsed, a.Rand = now.Sub(l.outage.since), l.rand()
	describe(a, failure)
	l.outage.spread = l.drawSpread()
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
	most := reconnect.MostSpread(l.c.set.ReconnectSpread, l.outage.retry)
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
	l.publish(Status{State: StateDisconnectedRetrying, Reason: reason, Retry: l.outage.retry, Delay: delay, Err: failure})
}

// wait asks the policy about the outage and sleeps for the delay.
func (l *loop) wait() phase {
	c := l.c
	var until time.Time
	passed, early := l.outage.question.failure.Passed, false
	for {
		if c.policies.Load() != l.outage.question.askedOf {
			d := l.ask(l.outage.question, &l.outage.series, l.outage.spread)
			delay := max(l.outage.spread, d.Delay-l.outage.question.paid)
			limit := c.set.OutageLimit
			if d.Retry && limit > 0 && delay > limit-l.outage.question.attempt.Elapsed {
				d = retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfTime}
			}
			if !d.Retry {
				l.endSeries(&l.outage.series)
				return l.giveUp(ReasonRetryExpired, retriesEnded(l.outage.question.failure, d.Reason, l.outage.retry-1))
			}
			until = l.outage.question.began.Add(delay)
			l.publishOutage(l.outage.reason, delay, l.outage.question.failure)
			l.outage.delay = d.Delay - l.outage.spread
		}
		select {
		case <-passed:
			passed, early = nil, true
		default:
		}
		if early { // cut the policy's delay short, but keep the spread
			until = earlier(until, l.outage.question.began.Add(l.outage.spread))
		}
		switch l.sleep(until, l.outage.question.failure, passed) {
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
	l.publish(Status{State: StateDisconnectedRetrying, Reason: ReasonConnecting, Retry: l.outage.retry})
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
	defer c.mu.Unlock()
	if !l.own.over {
		l.own.over, l.own.err = true, failure
		c.publishLocked(Status{State: StateDisconnected, Reason: reason, Retry: l.outage.retry, Err: failure,
			Flaps: l.flaps.flaps, Suspect: l.flaps.suspect()})
		c.halt(failure)
	}
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
			l.outage.startOver(time.Now())
			return l.again()
		case closing:
			return ended
		case woken:
		}
	}
}
