package device

import (
	"sync/atomic"
	"time"
)

// due returns when the loop must act next on an idle session. A time that has passed but waits for
// another event must not be a candidate, or the loop spins.
func (l *loop) due(now time.Time) time.Time {
	at := earlier(now.Add(clockCheck), l.conn.answers.check)
	switch {
	case l.conn.renewal.step == replacing: // no pause and no hold ends on this session
	case !l.pause.until.IsZero():
		at = earlier(at, l.pause.until)
	default:
		at = earlier(at, l.hold.until)
	}
	if now.Before(l.poison.quietUntil) {
		at = earlier(at, l.poison.quietUntil)
	}
	at = earlier(at, l.stableAt())
	at = earlier(at, l.conn.renewal.due(now, l.clock.wall))
	at = earlier(at, l.flappingEndsAt())
	at = earlier(at, l.conn.subs.due)
	at = earlier(at, l.pingDue())
	return earlier(at, l.expire(now))
}

// earlier returns the earlier of at and other. at must not be zero; a zero other is ignored.
func earlier(at, other time.Time) time.Time {
	if other.IsZero() || at.Before(other) {
		return at
	}
	return other
}

// loopTimer wakes the loop.
type loopTimer struct {
	poke  func()
	timer *time.Timer // nil until it is needed
	at    time.Time   // when it fires
	fired atomic.Bool // since it was armed; on boards it may fire a tick early
}

// arm makes the timer fire at the earliest of the given times; zero times are ignored. The timer
// only ever moves to an earlier time. When it fires early, the loop checks everything and arms it
// again.
func (t *loopTimer) arm(now time.Time, times ...time.Time) {
	var at time.Time
	for _, x := range times {
		if !x.IsZero() && (at.IsZero() || x.Before(at)) {
			at = x
		}
	}
	fired := t.fired.Load()
	if at.IsZero() || now.Before(t.at) && !at.Before(t.at) && !fired {
		return
	}
	wait := at.Sub(now)
	if fired && now.Before(t.at) {
		wait = max(wait, time.Millisecond) // a wait shorter than a tick would fire early again
	}
	t.at = at
	t.fired.Store(false)
	if t.timer == nil {
		t.timer = time.AfterFunc(wait, t.fire)
	} else {
		t.timer.Reset(wait)
	}
}

func (t *loopTimer) fire() {
	t.fired.Store(true)
	t.poke()
}

func (t *loopTimer) stop() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// expire ends the messages whose Expires has passed, and returns when to call it again, zero for
// never.
func (l *loop) expire(now time.Time) time.Time {
	wall := l.wall()
	next := l.c.outbox.expire(wall)
	if next.IsZero() {
		return next
	}
	return now.Add(next.Sub(wall))
}
