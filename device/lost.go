package device

import (
	"errors"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/reconnect"
	"github.com/hubline-iot/hubline/transport"
)

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
	l.outage.fail(reason, failure)
	if !rule.Retry {
		stale := wasUp || l.c.creds.Token != nil || l.c.creds.Sign != nil && l.clock.moved(l.wall(), now) != 0
		if failure.Kind != transport.Unauthorized || l.outage.renewed || l.c.fixed.Load() || !stale {
			return l.giveUp(ReasonNotRetryable, failure)
		}
		// The token may be the cause: it expired during a good session, its source returned an old one,
		// or the clock was set since it was signed. The next dial requests a fresh one, once.
		l.outage.renewed = true
		l.outage.next()
		l.publishOutage(reason, 0, failure)
		return l.again()
	}
	a := l.attempt(transport.ScopeConnection, l.outage.next(), now)
	a.Elapsed, a.Rand = now.Sub(l.outage.since), l.rand()
	describe(&a, failure)
	l.outage.ask(&question{attempt: a, failure: failure, began: now, paid: paid}, l.drawSpread())
	return waiting
}

// clockAtFault turns the failure of an attempt into ClockUnset if the clock was not set when the
// attempt began. A token signed by an unset clock may be refused although the key is right.
func (l *loop) clockAtFault(failure *transport.Error) *transport.Error {
	if !l.c.creds.ClockRefused(l.clock.wall, failure) {
		return failure
	}
	return &transport.Error{Kind: transport.ClockUnset, Scope: failure.Scope, Op: failure.Op, Proto: failure.Proto,
		RetryAfter: failure.RetryAfter, Err: failure}
}

// down records the end of connection k, because of err or as planned. An outage begins, and the
// count of retries is reset if the connection was stable or useful. paid is the time that counts
// toward the next delay. pace belongs to the rule for err.
func (l *loop) down(k *connection, err error, pace errfilter.Pace) (paid time.Duration) {
	if t := l.c.set.Trace; t != nil && t.SessionEnd != nil {
		l.calls("Trace.SessionEnd")
		t.SessionEnd(err, time.Since(k.upSince))
		l.called()
	}
	var failure *transport.Error
	if err != nil && !l.stable(k) {
		failure = ofTransport(err)
	}
	l.reportAttempt(failure, time.Now())
	switch {
	case l.stable(k):
		l.outage.forget()
		l.flaps = flapping{}
	case l.useful(k, pace):
		l.outage.countAnew()
		paid = k.workedFor()
	}
	l.outage.begin(time.Now())
	return paid
}

// over records what is in flight when a session is lost. It must be called before the queue is
// rewound.
func (l *loop) over() {
	e := l.evidence()
	e.quiet = l.poison.suspected() && time.Now().Before(l.poison.quietUntil)
	l.flaps.end(e, l.stable(l.conn))
}

// useful reports whether connection k was worth its cost although it was not stable; see
// reconnect.Useful.
func (l *loop) useful(k *connection, pace errfilter.Pace) bool {
	came := l.evidence().acknowledged - l.flaps.before
	return reconnect.Useful(k.workedFor(), l.outage.delay, came, pace)
}

func (l *loop) evidence() evidence {
	e := l.c.queue.evidence(slotInFlight)
	if x := l.c.features(); x != nil {
		e.acknowledged += x.settled()
	}
	return e
}

// reportAttempt reports once to the connection policy how the latest attempt to connect ended.
func (l *loop) reportAttempt(failure *transport.Error, now time.Time) {
	a := l.attempt(transport.ScopeConnection, l.outage.retry, now)
	a.Elapsed = now.Sub(l.outage.since)
	l.report(&l.outage.series, a, failure)
}

// stable reports whether k worked for StableTime, which resets the count of retries.
func (l *loop) stable(k *connection) bool { return k.workedFor() >= l.c.set.StableTime }

// end hangs up, joins the session's goroutine and queues the messages in flight again. It returns
// the connection, nil if there was none yet.
func (l *loop) end() *connection {
	l.worker.join()
	return l.settle()
}

// settle cleans up after the session's goroutine has ended, and returns its connection, nil if
// there was none yet.
func (l *loop) settle() *connection {
	k := l.conn
	l.conn = nil
	l.worker.discard()
	if !l.pause.running() {
		l.refused(false) // a refusal that arrives with the disconnect is applied first
	}
	l.c.queue.rewind()
	if x := l.c.features(); x != nil {
		x.over(l)
	}
	l.reportOutcomes(time.Now())
	return k
}
