package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

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
			at := l.outage.question.began.Add(delay)
			if !at.Equal(until) { // a program may set the same policy for each status
				l.publishOutage(l.outage.reason, delay, l.outage.question.failure)
			}
			until = at
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
		switch l.sleep(until, l.outage.question.began, l.outage.question.failure, passed) {
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
	now := time.Now()
	until := now.Add(delay)
	for {
		switch l.sleep(until, now, failure, nil) {
		case due:
			l.outage.startOver(time.Now())
			return l.again()
		case closing:
			return ended
		case woken:
		}
	}
}

func (l *loop) drawSpread() time.Duration {
	most := reconnect.MostSpread(l.c.set.ReconnectSpread, l.outage.retry)
	if most <= 0 {
		return 0
	}
	return reconnect.Spread(most, l.rand())
}

// wakeup is the reason why sleep returned.
type wakeup uint8

const (
	woken   wakeup = iota // something has changed: check, and continue to wait
	due                   // the wait is over
	closing               // the loop must end
)

// sleep waits until the given time, while no session is live. It also returns due when Reconnect is
// called, or when the clock jumps in a way that ends the wait after failure, which began at the
// given time. failure is nil before a first attempt. sleep returns woken when passed is closed.
func (l *loop) sleep(until, began time.Time, failure *transport.Error, passed <-chan struct{}) wakeup {
	now := time.Now()
	if l.hurries(now) || failure != nil && l.jumpEndsWait(now, began, failure) || !now.Before(until) {
		return due
	}
	until = earlier(until, l.hurryAt())
	l.timer.arm(now, until, now.Add(clockCheck), l.expire(now))
	select {
	case <-l.c.wake:
	case <-passed:
	case <-l.ctx.Done():
		return closing
	}
	return woken
}

// restart waits until a Start or Open of a client that was Disconnected may begin an attempt.
func (l *loop) restart() phase {
	for {
		switch l.sleep(l.hurryAt(), time.Time{}, nil, nil) {
		case due:
			return connecting
		case closing:
			return ended
		case woken:
		}
	}
}

// hurries reports whether the program asks for an attempt now, by Reconnect or by Start on a client
// that was Disconnected. A program that calls these for each status must not make the client spin.
func (l *loop) hurries(now time.Time) bool {
	if at := l.hurryAt(); at.IsZero() || now.Before(at) {
		return false
	}
	l.c.reconnect.Store(false)
	l.c.hurried = now
	return true
}

// hurryAt returns when the attempt that the program asks for may begin, zero if it asks for none.
func (l *loop) hurryAt() time.Time {
	if !l.c.reconnect.Load() {
		return time.Time{}
	}
	return l.c.hurried.Add(reconnect.LeastDelay)
}

// jumpEndsWait reports whether a jump of the clock ends the wait after failure, because the network
// or the token may have become good. A delay that the service asked for stays: a jump meanwhile
// ends what the policy has added to it.
func (l *loop) jumpEndsWait(now, began time.Time, failure *transport.Error) bool {
	asked := min(failure.RetryAfter, times.MaxRetryAfter)
	if failure.Kind != transport.ClockUnset && now.Before(began.Add(asked)) {
		return false
	}
	return l.clockJumped(now) != 0 && failure.Kind != transport.Throttled && failure.Kind != transport.Quota
}
