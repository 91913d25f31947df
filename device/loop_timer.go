package device

import "time"

// due returns when the next thing is to be done while a session is up and idle. What is due already
// and waits for something else must not be among the candidates, or the loop spins.
func (l *loop) due(now time.Time) time.Time {
	at := earlier(now.Add(clockCheck), l.conn.ackCheck)
	switch {
	case l.conn.plan == replacing: // no pause and no hold ends on this session
	case !l.pause.until.IsZero():
		at = earlier(at, l.pause.until)
	default:
		at = earlier(at, l.hold.until)
	}
	at = earlier(at, l.stableAt())
	at = earlier(at, l.planDue(now))
	at = earlier(at, l.calmAt())
	at = earlier(at, l.conn.featureDue)
	at = earlier(at, l.pingDue())
	return earlier(at, l.expire(now))
}

// earlier returns the earlier one of at, which is not zero, and other, which does not count when it
// is.
func earlier(at, other time.Time) time.Time {
	if other.IsZero() || at.Before(other) {
		return at
	}
	return other
}

// arm makes the one timer fire at the earliest of the given times; zero times do not count. It is
// only ever moved to an earlier time: when it fires too soon, the loop looks at everything and arms
// it again.
func (l *loop) arm(now time.Time, times ...time.Time) {
	var at time.Time
	for _, t := range times {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	fired := l.fired.Load()
	if at.IsZero() || now.Before(l.armed) && !at.Before(l.armed) && !fired {
		return
	}
	wait := at.Sub(now)
	if fired && now.Before(l.armed) {
		wait = max(wait, time.Millisecond) // what is less than a tick would come too early again
	}
	l.armed = at
	l.fired.Store(false)
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.alarm)
	} else {
		l.timer.Reset(wait)
	}
}

// alarm is what the timer does.
func (l *loop) alarm() {
	l.fired.Store(true)
	l.c.poke()
}

// expire ends the messages whose time is over and returns when to look again, zero for never.
func (l *loop) expire(now time.Time) time.Time {
	wall := l.wall()
	next := l.c.outbox.expire(wall)
	if next.IsZero() {
		return next
	}
	return now.Add(next.Sub(wall))
}
