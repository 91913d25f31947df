package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// pause is the time in which nothing is sent because the service refused a message for now. It
// belongs to the loop and outlives sessions, so a new connection does not end it.
type pause struct {
	*question         // nil: no pause
	series    *series // of the oldest message refused
	tag       uint16  // that message
	seq       uint64
	until     time.Time // zero: no pause
}

func (p *pause) running() bool { return !p.until.IsZero() }

func (p *pause) end() { *p = pause{} }

// refused asks the message policy about the oldest refused message, and pauses all sending for the
// delay. If the policy stops, that message alone fails, and the next one is asked about. publish
// selects whether the pause is published.
func (l *loop) refused(publish bool) {
	l.reportOutcomes(time.Now())
	for {
		tag, seq, r, s, ok := l.c.queue.oldestRefused()
		if !ok {
			return
		}
		now := time.Now()
		l.pause = pause{tag: tag, seq: seq, series: s, question: &question{
			attempt: l.attempt(transport.ScopeOperation, r.count, now),
			failure: r.err, began: now,
		}}
		a := &l.pause.attempt
		a.Elapsed, a.Rand = now.Sub(r.since), l.rand()
		describe(a, r.err)
		if l.askToPause() {
			if publish {
				l.publishPause(now)
			}
			return
		}
	}
}

// askToPause asks the current policy. It returns false if the policy stops: the message has failed
// and there is no pause.
func (l *loop) askToPause() bool {
	l.pause.series = l.seriesOf(l.pause.tag, l.pause.seq, l.pause.series)
	d := l.ask(l.pause.question, l.pause.series, 0)
	if !d.Retry {
		l.endSeries(l.pause.series)
		l.c.queue.fail(l.pause.tag, l.pause.seq, retriesEnded(l.pause.failure, d.Reason, l.pause.attempt.Retry-1))
		l.pause.end()
		return false
	}
	l.pause.until = l.pause.began.Add(d.Delay)
	return true
}

// askAgain asks a new policy about the running pause.
func (l *loop) askAgain(now time.Time) {
	if l.askToPause() {
		l.publishPause(now)
		return
	}
	l.refused(true)
	if !l.pause.running() {
		l.publishConnected()
	}
}

// resume ends a pause; refused messages are sent first.
func (l *loop) resume() {
	l.pause.end()
	l.c.queue.requeue()
	l.publishConnected()
}

func (l *loop) publishPause(now time.Time) {
	l.publish(Status{State: StateConnected, Reason: ReasonPaused, Retry: l.pause.attempt.Retry,
		Delay: max(0, l.pause.until.Sub(now)),
		Err:   l.pause.failure})
}
