package device

import (
	"time"

	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// A policy may be asked before each try (retrypolicy.Gate): a rate limiter, a breaker, a quota. The
// loop asks it before each attempt to connect, and for each message before it hands the message
// over. A gate that delays a try delays everything behind it. A refusal has the same effect as a
// policy that stops.

// admitted asks the connection policy's gate and waits as it says, plus a share of ReconnectSpread.
// If the gate refuses, OutageLimit would be exceeded, or the client closes, ok is false and p is
// the next phase.
func (l *loop) admitted() (p phase, ok bool) {
	c := l.c
	var until time.Time
	var asked *policies
	for {
		if set := c.policies.Load(); set != asked {
			now := time.Now()
			asked, l.unreported = set, set
			if l.outage != nil && l.outage.pending.Retry && l.outage.askedOf != set {
				l.outage.withdraw(l)
				l.last.Cost = 0
			}
			gate, ok := isGate(set.connection)
			if !ok {
				l.outage = nil
				return connecting, true
			}
			a := l.attempt(transport.ScopeConnection, now)
			a.Retry, a.Last, a.Elapsed, a.Rand = l.retry, l.last, now.Sub(l.since), l.rand()
			if l.failure != nil {
				describe(&a, l.failure)
			}
			d := l.admitBy(gate, a)
			if d.Retry && d.Delay <= 0 {
				if d.Cost != 0 {
					l.last.Cost = d.Cost
				}
				l.outage = nil
				return connecting, true
			}
			l.unreported = nil
			spread := l.drawSpread()
			if d.Delay = min(d.Delay, maxDelay-spread) + spread; d.Retry && c.set.OutageLimit > 0 &&
				d.Delay > c.set.OutageLimit-a.Elapsed {
				d = retrypolicy.Decision{Reason: retrypolicy.ReasonOutOfTime}
			}
			if !d.Retry {
				l.outage.withdraw(l)
				return l.giveUp(ReasonRetryExpired, refusedTry(transport.ScopeConnection, transport.OpDial, d,
						max(l.retry-1, 0), a.Err)),
					false
			}
			until = now.Add(d.Delay)
			l.publish(Status{State: StateDisconnectedRetrying, Reason: ReasonHeld, Retry: l.retry, Delay: d.Delay, Err: a.Err})
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

// hold is a delay that the message policy's gate asked for.
type hold struct {
	until time.Time // zero: none
	by    *policies
}

// held reports whether messages wait for the gate.
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

// admit asks the message policy's gate about a batch and returns the admitted part. A refused
// message fails alone. A delayed message is put back, with all behind it.
func (l *loop) admit(batch []transport.Item, now time.Time) []transport.Item {
	p := l.c.policies.Load()
	gate, ok := isGate(p.message)
	if !ok {
		return batch
	}
	may := batch[:0]
	for i, item := range batch {
		seq, r := l.c.outbox.taken(item.Tag)
		a := l.attempt(transport.ScopeOperation, now)
		a.Retry, a.Last, a.Rand = r.count, r.last, l.rand()
		if r.err != nil {
			a.Elapsed = now.Sub(r.since)
			describe(&a, r.err)
		}
		if r.by != nil && r.by != p {
			r.withdraw(l, a)
			a.Last = r.last
		}
		d := l.admitBy(gate, a)
		switch {
		case !d.Retry:
			if r.by != nil {
				r.withdraw(l, a)
			}
			l.c.outbox.reject(item.Tag, seq, refusedTry(transport.ScopeOperation, transport.OpSend, d, max(r.count-1, 0), a.Err))
			continue
		case d.Delay > 0:
			l.c.outbox.untake(batch[i:])
			l.hold = hold{until: now.Add(d.Delay), by: p}
		default:
			if d.Cost != 0 {
				r.last.Cost = d.Cost
			}
			if d.Cost != 0 || r.count > 0 {
				l.c.outbox.decided(item.Tag, seq, r.last, nil)
			}
			may = append(may, item)
			continue
		}
		break
	}
	clear(batch[len(may):])
	return may
}

// withdraw tells the policy that decided about the message that the retry is not made, or not under
// that policy. a is the current question.
func (r *refusal) withdraw(l *loop, a retrypolicy.Attempt) {
	a.Last = r.last
	if w, ok := isWithdrawer(r.by.of(&a)); ok && a.Last.Retry {
		l.withdrawFrom(w, a)
	}
	r.last.Cost, r.by = 0, nil
}
