package device

import (
	"errors"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// refused fails the calls that wait for the subscription with the answer why. Filter and policy
// decide about their retries; the session stays.
func (t *twin) refused(l *loop, why *transport.Error) {
	now := time.Now()
	t.mu.Lock()
	t.known = false
	var waiting []*twinCall
	for _, k := range t.calls {
		if k.state == callQueued {
			own := *why
			k.begun, k.state, k.answer = true, callSettling, transport.Reply{Err: &own}
			waiting = append(waiting, k)
		}
	}
	t.mu.Unlock()
	for _, k := range waiting {
		t.judge(l, k, k.failure(), now)
	}
}

// serve settles answered calls and hands over the next ones.
func (t *twin) serve(l *loop, now time.Time) (next time.Time) {
	t.settleAnswered(l, now)
	t.mu.Lock()
	const both = transport.FeatureDesired | transport.FeatureTwin
	if t.changes != nil && l.conn.subs.granted&both == both {
		// Read only with the subscription, so that a change after the read is notified.
		next = t.catchUpLocked(now)
	}
	calls := append(t.turn[:0], t.calls...)
	t.mu.Unlock()
	for _, k := range calls {
		t.mu.Lock()
		k.begun = true
		state, may := k.state, t.mayGoLocked(k)
		due := k.sent.Add(t.set.AckTimeout)
		if state == callInFlight && !now.Before(due) {
			due = l.conn.answers.lastProgress(k.sent, 0).Add(t.set.AckTimeout)
		}
		if state == callInFlight && !now.Before(due) {
			k.answer = transport.Reply{Err: &transport.Error{Kind: transport.Timeout, Op: k.request.Op, Err: errNoAnswer}}
			k.state, due = callAnswered, now // settled in the next turn
		}
		t.mu.Unlock()

		switch state {
		case callInFlight:
			next = earlier(due, next)
		case callWaiting:
			if k.asked.askedOf != l.c.policies.Load() {
				t.ask(l, k)
			}
			next = earlier(k.until, next)
			if !now.Before(k.until) {
				t.move(k, callQueued)
			}
		case callQueued:
			switch {
			case !may || l.conn.subs.granted&transport.FeatureTwin == 0 || l.drains(now):
			case now.Before(k.until) && k.gatedBy == l.c.policies.Load(): // the policy asked for it
				next = earlier(k.until, next)
			default:
				next = earlier(t.hand(l, k, now), next)
			}
		case callAnswered, callSettling, callGone:
		}
	}
	clear(calls)
	t.turn = calls
	return next
}

var errNoAnswer = errors.New("no answer within AckTimeout")

// mayGoLocked reports whether k may be handed over: patches go one at a time, in order.
func (t *twin) mayGoLocked(k *twinCall) bool {
	if k.request.Op != transport.OpTwinPatch {
		return true
	}
	first := slices.IndexFunc(t.calls, func(k *twinCall) bool { return k.request.Op == transport.OpTwinPatch })
	return first >= 0 && t.calls[first] == k
}

// move moves a call to state, unless its caller has given up, and reports whether it did.
func (t *twin) move(k *twinCall, state callState) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	waited := k.state != callGone
	if waited {
		k.state = state
	}
	return waited
}

// hand hands a call to the session, unless the policy delays or refuses it. It returns when
// to look at the call again.
func (t *twin) hand(l *loop, k *twinCall, now time.Time) (next time.Time) {
	l.beginSeries(&k.series, transport.ScopeOperation)
	k.gatedBy = k.series.by
	if k.series.main != nil {
		d := l.admit(&k.series, t.attempt(l, k, now))
		switch {
		case !d.Retry:
			l.endSeries(&k.series)
			var cause error
			if k.asked.failure != nil {
				cause = k.asked.failure
			}
			t.fail(k, refusedTry(transport.ScopeOperation, k.request.Op, d, max(k.retry-1, 0), cause))
			return now
		case d.Delay > 0:
			k.until = now.Add(d.Delay)
			return k.until
		}
	}
	t.mu.Lock()
	gone := k.state == callGone
	if !gone {
		t.id = max((t.id+1)%methodIDs, firstID) // it wraps after two billion calls
		k.request.ID = t.id
		k.state, k.sent, k.handedBefore, k.handed = callInFlight, now, k.handed, true
	}
	t.mu.Unlock()
	if gone {
		l.endSeries(&k.series)
		return now
	}
	l.conn.do(k.request)
	return now.Add(t.set.AckTimeout)
}

// settleAnswered ends the successful calls, and reports and judges the failed ones.
func (t *twin) settleAnswered(l *loop, now time.Time) {
	t.mu.Lock()
	for len(t.finished) > 0 {
		k := t.finished[0]
		t.mu.Unlock()
		if k.abandoned {
			t.report(l, k, k.failure(), now)
		}
		l.endSeries(&k.series)
		t.mu.Lock()
		t.finished = slices.Delete(t.finished, 0, 1)
	}
	t.mu.Unlock()
	for {
		t.mu.Lock()
		i := slices.IndexFunc(t.calls, func(k *twinCall) bool { return k.state == callAnswered })
		if i < 0 {
			t.mu.Unlock()
			return
		}
		k := t.calls[i]
		k.state = callSettling
		t.known = t.known || k.answer.Err == nil
		t.mu.Unlock()
		if failure := k.failure(); failure != nil {
			t.failed(l, k, failure, now)
			continue
		}
		t.report(l, k, nil, now)
		t.mu.Lock()
		t.finishLocked(k, k.answer)
		t.mu.Unlock()
	}
}

// failure returns the failure that k was answered with, nil for success.
func (k *twinCall) failure() *transport.Error {
	if k.answer.Err == nil {
		return nil
	}
	own := *ofTransport(k.answer.Err)
	own.Op = k.request.Op // an answer does not name it
	return &own
}

// failed reports a failed try to the policy and judges it.
func (t *twin) failed(l *loop, k *twinCall, err *transport.Error, now time.Time) {
	t.report(l, k, err, now)
	t.judge(l, k, err, now)
}

// judge asks filter and policy about a failure.
func (t *twin) judge(l *loop, k *twinCall, err *transport.Error, now time.Time) {
	switch {
	case k.handed && !repeats(&k.request):
		t.fail(k, err)
		return
	case !errfilter.Retryable(err):
		t.fail(k, err)
		return
	}
	if k.retry == 0 {
		k.since = now
	}
	k.retry++
	k.asked = question{failure: err, began: now}
	k.asked.attempt = t.attempt(l, k, now)
	t.ask(l, k)
}

// ask asks the current policy about the failure of a call.
func (t *twin) ask(l *loop, k *twinCall) {
	d := l.ask(&k.asked, &k.series, 0)
	k.until = k.asked.began // no wait if the call ends here
	if !d.Retry {
		l.endSeries(&k.series)
		t.fail(k, retriesEnded(k.asked.failure, d.Reason, k.retry-1))
		return
	}
	k.until = k.asked.began.Add(d.Delay)
	if !t.move(k, callWaiting) {
		l.endSeries(&k.series)
	}
	t.poke()
}

// fail ends a call with err, marked as unknown outcome if a try may have been taken.
func (t *twin) fail(k *twinCall, err *transport.Error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.handed {
		err = operr.OutcomeUnknown(err)
	}
	t.finishLocked(k, transport.Reply{Err: err})
}

// attempt returns the question about the next try of a call.
func (t *twin) attempt(l *loop, k *twinCall, now time.Time) retrypolicy.Attempt {
	a := l.attempt(transport.ScopeOperation, k.retry, now)
	a.Rand = l.rand()
	if k.asked.failure != nil {
		a.Elapsed = now.Sub(k.since)
		describe(&a, k.asked.failure)
	}
	return a
}

// report reports the end of a try to the policy that admitted it.
func (t *twin) report(l *loop, k *twinCall, failure *transport.Error, now time.Time) {
	l.report(&k.series, l.attempt(transport.ScopeOperation, k.retry, now), failure)
}

// over queues the calls in flight again if they may be repeated, and ends the others. A policy that
// panics loses no call: over runs again.
func (t *twin) over(l *loop) {
	now := time.Now()
	t.settleAnswered(l, now)
	t.mu.Lock()
	if t.changes != nil {
		t.changes.stale = true // a change of the next session may be one of another twin
	}
	calls := slices.Clone(t.calls)
	t.mu.Unlock()
	last := l.ctx.Err() != nil // no loop is left to make retries
	for _, k := range calls {
		t.mu.Lock()
		lost := k.state == callInFlight
		settling := k.state == callSettling // its policy panicked
		if settling && k.answer.Err == nil {
			t.finishLocked(k, k.answer)
		}
		t.mu.Unlock()
		if lost {
			t.report(l, k, errGoneWith, now)
		}
		if lost || last {
			l.endSeries(&k.series)
		}
		switch {
		case settling && k.answer.Err != nil:
			t.fail(k, k.failure())
		case !lost:
		case repeats(&k.request):
			t.move(k, callQueued)
		default:
			t.fail(k, &transport.Error{Kind: transport.Network, Op: k.request.Op, Err: errGoneWith.Err})
		}
	}
}

func (t *twin) feature() *feature {
	return &feature{wants: t.wants, refused: t.refused, begin: t.begin, serve: t.serve, busy: t.busy, over: t.over,
		resume: t.resume, halt: t.halt, end: t.end, reply: t.reply, deliver: t.deliver, fill: t.fill, held: t.held}
}
