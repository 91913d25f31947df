package device

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// A policy with memory is asked before each attempt: a rate limiter, a breaker, a quota. The loop
// asks it before each attempt to connect, and for each message before it hands the message over. If
// it delays an attempt, it delays everything behind it. A refusal has the same effect as a policy
// that stops.

// admitted asks the connection policy whether to connect, and waits as it says, plus a share of
// ReconnectSpread. If the policy refuses, OutageLimit would be exceeded, or the client closes, ok
// is false and p is the next phase.
func (l *loop) admitted() (p phase, ok bool) {
	c := l.c
	var until time.Time
	var asked *policies
	for {
		if asked != c.policies.Load() {
			now := time.Now()
			l.beginSeries(&l.outage.series, transport.ScopeConnection)
			asked = l.outage.series.by
			if l.outage.series.main == nil {
				l.outage.question = nil
				return connecting, true
			}
			a := l.attempt(transport.ScopeConnection, l.outage.retry, now)
			a.Elapsed, a.Rand = now.Sub(l.outage.since), l.rand()
			if l.outage.failure != nil {
				describe(&a, l.outage.failure)
			}
			d := l.admit(&l.outage.series, a)
			if d.Retry && d.Delay <= 0 {
				l.outage.question = nil
				return connecting, true
			}
			spread := l.drawSpread()
			if d.Delay = min(d.Delay, maxDelay-spread) + spread; d.Retry && c.set.OutageLimit > 0 &&
				d.Delay > c.set.OutageLimit-a.Elapsed {
				d = retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfTime}
			}
			if !d.Retry {
				l.endSeries(&l.outage.series)
				return l.giveUp(ReasonRetryExpired, refusedTry(transport.ScopeConnection, transport.OpDial, d,
					max(l.outage.retry-1, 0), a.Err)), false
			}
			until = now.Add(d.Delay)
			l.publish(Status{State: StateDisconnectedRetrying, Reason: ReasonHeld, Retry: l.outage.retry,
				Delay: d.Delay, Err: a.Err})
		}
		switch l.sleep(until, nil, nil) {
		case due:
			asked = nil // ask again
		case closing:
			return ended, false
		case woken:
		}
	}
}

// hold is a delay that the message policy asked for.
type hold struct {
	until time.Time // zero: none
	by    *policies
}

// held reports whether messages wait for the policy.
func (l *loop) held(now time.Time) bool {
	if l.hold.until.IsZero() {
		return false
	}
	if now.Before(l.hold.until) && l.hold.by == l.c.policies.Load() {
		return true
	}
	l.hold = hold{}
	return false
}

// admitBatch asks the message policy about a batch and returns the admitted part. A refused message
// fails alone. A delayed message is put back, with all behind it.
func (l *loop) admitBatch(batch []transport.Item, now time.Time) []transport.Item {
	set := l.c.policies.Load()
	if _, ok := set.message.(retrypolicy.Stateful); !ok {
		return batch
	}
	may := batch[:0]
	for i, item := range batch {
		seq, r, s := l.c.outbox.taken(item.Tag)
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
			l.c.outbox.reject(item.Tag, seq, refusedTry(transport.ScopeOperation, transport.OpSend, d, max(r.count-1, 0), a.Err))
			continue
		case d.Delay > 0:
			l.c.outbox.untake(batch[i:])
			l.hold = hold{until: now.Add(d.Delay), by: set}
		default:
			may = append(may, item)
			continue
		}
		break
	}
	clear(batch[len(may):])
	return may
}

// seriesOf returns the series of a message under the current policies. s is what the outbox keeps
// of it, or nil.
func (l *loop) seriesOf(tag uint16, seq uint64, s *series) *series {
	if s != nil && s.by == l.c.policies.Load() {
		return s
	}
	l.endSeries(s)
	s = &series{}
	l.beginSeries(s, transport.ScopeOperation)
	if s.main != nil {
		l.c.outbox.remember(tag, seq, s)
	}
	return s
}
