package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// handOver hands messages to the session, and reports whether there was nothing to do.
func (l *loop) handOver(now time.Time) (idle bool) {
	switch {
	case l.drains(now):
		return true
	case !l.pause.running() && l.c.queue.anyRefused():
		l.judgeRefusal()
		l.refused(true)
	case !l.pause.running():
		return l.gate.closed(now, l.c.policies.Load()) || l.send(now)
	case l.c.policies.Load() != l.pause.askedOf:
		l.askAgain(now)
	case !now.Before(l.pause.until):
		l.resume()
	default:
		return true
	}
	return false
}

// send hands the session a batch of messages, and reports whether there were none.
func (l *loop) send(now time.Time) (none bool) {
	c := l.c
	if l.onTrial(now) {
		return true
	}
	batch := c.queue.take(l.conn.batch[:0], now, l.clock.wall, l.conn.encodes)
	if l.poison.last != 0 {
		c.queue.aim(0, false)
	}
	if len(batch) == 0 {
		return true
	}
	if batch = l.admitBatch(batch, now); len(batch) == 0 {
		c.queue.sent()
		return false // look again: the gate may be closed, or there are messages behind the refused ones
	}
	l.conn.session.Send(batch)
	c.queue.sent()
	if t := c.set.Trace; t != nil && t.Sent != nil {
		l.calls("Trace.Sent")
		t.Sent(len(batch))
		l.called()
	}
	clear(batch)
	l.conn.batch = batch
	if l.conn.answers.check.IsZero() {
		l.conn.answers.check = now.Add(l.conn.answers.every())
	}
	return false
}

// A policy with memory is asked before each attempt: a rate limiter, a breaker, a quota. The loop
// asks it before each attempt to connect, and for each message before it hands the message over. If
// it delays an attempt, it delays everything behind it. A refusal has the same effect as a policy
// that stops.

// admitBatch asks the message policy about a batch and returns the admitted part. A refused message
// fails alone. A delayed message is put back, with all behind it.
func (l *loop) admitBatch(batch []transport.Item, now time.Time) []transport.Item {
	set := l.c.policies.Load()
	if !set.message.Stateful() {
		return batch
	}
	may := batch[:0]
	for i, item := range batch {
		seq, r, s := l.c.queue.taken(item.Tag)
		if s = l.seriesOf(item.Tag, seq, s); s.main == nil {
			may = append(may, item)
			continue
		}
		a := l.attempt(transport.ScopeOperation, r.count, now)
		a.Rand = l.rand()
		if r.err != nil {
			a.Elapsed = now.Sub(r.since)
			describe(&a, r.err)
		}
		d := l.admit(s, a)
		switch {
		case !d.Retry:
			l.endSeries(s)
			l.c.queue.untake(batch[i : i+1])
			l.c.queue.fail(item.Tag, seq, refusedTry(transport.ScopeOperation, transport.OpSend, d, max(r.count-1, 0), a.Err))
			continue
		case d.Delay > 0:
			l.c.queue.untake(batch[i:])
			l.gate.close(now.Add(d.Delay), set)
		default:
			may = append(may, item)
			continue
		}
		break
	}
	clear(batch[len(may):])
	return may
}

// seriesOf returns the series of a message under the current policies. s is what the queue keeps
// of it, or nil.
func (l *loop) seriesOf(tag uint16, seq uint64, s *series) *series {
	if s != nil && s.by == l.c.policies.Load() {
		return s
	}
	l.endSeries(s)
	s = &series{}
	l.beginSeries(s, transport.ScopeOperation)
	if s.main != nil {
		l.c.queue.remember(tag, seq, s)
	}
	return s
}

// reportOutcomes reports to the series of messages how they ended. It may run again after a policy
// that panicked: report and endSeries do nothing a second time.
func (l *loop) reportOutcomes(now time.Time) {
	for _, o := range l.c.queue.collect() {
		if o.ended {
			l.report(o.series, l.attempt(transport.ScopeOperation, o.retry, now), o.err)
		}
		if o.over {
			l.endSeries(o.series)
		}
	}
	l.c.queue.reported()
}

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
	before := l.pause.until
	if l.askToPause() {
		if !l.pause.until.Equal(before) {
			l.publishPause(now)
		}
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
