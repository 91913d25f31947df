package device

import (
	"time"
)

// handOver hands messages to the session, and reports whether there was nothing to do.
func (l *loop) handOver(now time.Time) (idle bool) {
	switch {
	case l.conn.renewal.step == replacing:
		return true // this session gets no more messages
	case l.pause.until.IsZero() && l.c.outbox.anyRefused():
		l.refused(true)
	case l.pause.until.IsZero():
		return l.held(now) || l.send(now)
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
	batch := c.outbox.take(l.batch[:0], now, l.clock.wall)
	if l.poison.last != 0 {
		c.outbox.aim(0, false)
	}
	if len(batch) == 0 {
		return true
	}
	if batch = l.admitBatch(batch, now); len(batch) == 0 {
		return false // look again: there may be a hold, or messages behind the refused ones
	}
	l.conn.session.Send(batch)
	if t := c.set.Trace; t != nil && t.Sent != nil {
		l.calls("Trace.Sent")
		t.Sent(len(batch))
		l.called()
	}
	clear(batch)
	l.batch = batch
	if l.conn.answers.check.IsZero() {
		l.conn.answers.check = now.Add(l.conn.answers.every())
	}
	return false
}
