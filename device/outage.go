package device

import (
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// lost takes the end of a connection or attempt through filter and policy.
func (l *loop) lost(reason Reason, err error) phase {
	c := l.c
	if l.ctx.Err() != nil {
		return ended
	}
	wasUp := !l.upSince.IsZero()
	if wasUp {
		l.down(err)
	}
	now := time.Now()
	failure := transport.Find(err)
	if failure == nil { // a transport that does not translate lost its connection all the same
		failure = &transport.Error{Kind: transport.Network, Scope: transport.Connection, Op: transport.OpRun, Err: err}
	}
	l.askedAbout = nil
	if !errfilter.Retryable(failure) {
		if failure.Kind != transport.Unauthorized || l.renewed || !wasUp && c.creds.Token == nil {
			return l.giveUp(NotRetryable, failure)
		}
		// The token may be the cause: it ran out under a session that was good, or its source gave an old one. The next dial asks for a fresh one, once.
		l.renewed = true
		l.retry++
		l.c.publish(Status{State: DisconnectedRetrying, Reason: reason, Retry: l.retry, Err: failure, Flaps: l.flaps.flaps, Suspect: l.flaps.suspect()})
		return l.again()
	}
	l.retry++
	l.incident = incident{
		attempt: retrypolicy.Attempt{
			Retry: l.retry, Scope: transport.Connection, Kind: failure.Kind, After: failure.RetryAfter,
			Elapsed: now.Sub(l.since), Last: l.last, Rand: c.set.Rand(), Err: failure,
		},
		failure: failure, reason: reason, began: now,
	}
	l.spread = 0
	if most := c.set.ReconnectSpread; most > 0 {
		l.spread = time.Duration(c.set.Rand() % uint64(most))
	}
	return waiting
}

// wait asks the policy about the incident and sleeps as it says.
func (l *loop) wait() phase {
	c := l.c
	var until time.Time
	for {
		now := time.Now()
		if p := c.policies.Load(); p != l.askedAbout {
			l.askedAbout = p
			d := p.decide(l.incident.attempt)
			d.Delay += l.spread
			l.traceDecision(d)
			limit := c.set.OutageLimit
			if !d.Retry || limit > 0 && l.incident.attempt.Elapsed+d.Delay > limit {
				return l.giveUp(RetryExpired, retriesEnded(l.incident.failure))
			}
			l.last = d
			until = l.incident.began.Add(d.Delay)
			c.publish(Status{
				State: DisconnectedRetrying, Reason: l.incident.reason, Retry: l.retry, Delay: d.Delay, Err: l.incident.failure,
				Flaps: l.flaps.flaps, Suspect: l.flaps.suspect(),
			})
		}
		if c.reconnect.Swap(false) || l.clockJumped(now) != 0 || !now.Before(until) {
			return l.again()
		}
		l.arm(now, until, now.Add(clockCheck), l.expire(now))
		select {
		case <-l.timer.C:
			l.armed = time.Time{}
		case <-c.wake:
		case <-l.ctx.Done():
			return ended
		}
	}
}

// again goes on to the next attempt.
func (l *loop) again() phase {
	l.incident = incident{}
	l.c.publish(Status{State: DisconnectedRetrying, Reason: Connecting, Retry: l.retry})
	return connecting
}

// giveUp makes the client Disconnected, unless TryAgainAfter is set. Enqueued messages stay for the next Open; calls of Send end with the failure.
func (l *loop) giveUp(reason Reason, failure *transport.Error) phase {
	c := l.c
	if c.set.TryAgainAfter > 0 {
		return l.rest(reason, failure)
	}
	c.mu.Lock()
	mine := !l.own.over
	if mine {
		l.own.over = true
		c.publishLocked(Status{State: Disconnected, Reason: reason, Retry: l.retry, Err: failure, Flaps: l.flaps.flaps, Suspect: l.flaps.suspect()})
		c.box.halt(failure)
	}
	c.mu.Unlock()
	return ended
}

// rest waits for TryAgainAfter and begins from scratch.
func (l *loop) rest(reason Reason, failure *transport.Error) phase {
	c := l.c
	c.publish(Status{State: DisconnectedRetrying, Reason: reason, Delay: c.set.TryAgainAfter, Err: failure, Flaps: l.flaps.flaps, Suspect: l.flaps.suspect()})
	until := time.Now().Add(c.set.TryAgainAfter)
	for {
		now := time.Now()
		if c.reconnect.Swap(false) || l.clockJumped(now) != 0 || !now.Before(until) {
			l.retry, l.last, l.renewed, l.since = 0, retrypolicy.Decision{}, false, now
			return l.again()
		}
		l.arm(now, until, now.Add(clockCheck), l.expire(now))
		select {
		case <-l.timer.C:
			l.armed = time.Time{}
		case <-c.wake:
		case <-l.ctx.Done():
			return ended
		}
	}
}

func (l *loop) traceDecision(d retrypolicy.Decision) {
	if t := l.c.set.Trace; t != nil && t.Decision != nil {
		t.Decision(l.incident.attempt, d)
	}
}
