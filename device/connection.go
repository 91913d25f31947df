package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// connection is the live session and its state. It exists from the end of Dial until the session's
// goroutine was joined. Loop only.
type connection struct {
	session transport.Session
	upSince time.Time // zero while the connection does not count as up
	pinged  time.Time // when the session was last asked to ping

	batch   []transport.Item  // buffer of send; it grows with use
	request transport.Request // buffer of do
	subs    subscriptions
	answers answers
	renewal renewal
}

// do makes a request of the session.
func (k *connection) do(r transport.Request) {
	k.request = r
	k.session.Do(&k.request)
}

// lastsAt returns when the connection counts as stable. A connection that has messages in flight
// and has answered none gets until the next check for an overdue answer.
func (l *loop) lastsAt() time.Time {
	at := l.conn.upSince.Add(l.c.set.StableTime)
	if at.Before(l.conn.answers.check) && l.c.queue.unanswered(l.conn.upSince) {
		return l.conn.answers.check
	}
	return at
}

// workedFor returns how long the connection worked. One that was cut for a missing answer worked
// until AckTimeout began to run.
func (k *connection) workedFor() time.Duration {
	if !k.answers.silent.IsZero() {
		return k.answers.silent.Sub(k.upSince)
	}
	return time.Since(k.upSince)
}

// stable reports whether k worked for StableTime, which resets the count of retries.
func (l *loop) stable(k *connection) bool { return k.workedFor() >= l.c.set.StableTime }

// answers finds a session that acknowledges nothing.
type answers struct {
	timeout    time.Duration
	progressor transport.Progressor // the session, if it implements it
	check      time.Time            // when to look for an overdue answer; zero: none is outstanding
	late       bool                 // the latest check came so late that it did not count
	silent     time.Time            // when the time-out began to run, if it ended the session; else zero
}

// every returns the interval of checks. A Progressor is asked more often than once per time-out,
// because the kernel reports how much is unsent at that moment, but not when that changed.
func (a *answers) every() time.Duration {
	if a.progressor == nil {
		return a.timeout
	}
	return a.timeout / 8
}

const (
	// stopped is by how much a check is late when the process was stopped, by a signal or with its
	// virtual machine. The answers may have arrived meanwhile: the session gets readTime to read them.
	stopped  = time.Second
	readTime = 2 * time.Second
)

// overdue reports whether an answer is outstanding and the connection made no progress for too
// long. If not, it sets the time of the next check.
func (a *answers) overdue(now time.Time, o *queue) bool {
	if a.check.IsZero() || now.Before(a.check) {
		return false
	}
	if !a.late && now.Sub(a.check) > stopped {
		a.late, a.check = true, now.Add(readTime)
		return false
	}
	a.late = false
	from, more, ok := o.answerDueFrom()
	if !ok {
		a.check = time.Time{}
		return false
	}
	from = a.lastProgress(from, more)
	due := from.Add(a.timeout)
	if !now.Before(due) {
		a.silent = from
		return true
	}
	a.check = earlier(due, now.Add(a.every()))
	return false
}

// lastProgress returns the later of the connection's last progress and from, which is later by more
// unless bytes wait on this side.
func (a *answers) lastProgress(from time.Time, more time.Duration) time.Time {
	var at time.Time
	var waits bool
	if a.progressor != nil {
		at, waits = a.progressor.Progress()
	}
	if !waits {
		from = from.Add(more)
	}
	if from.Before(at) {
		return at
	}
	return from
}

// ping requests a ping from the session when one is due, even on a busy connection.
func (l *loop) ping(now time.Time) {
	if at := l.pingDue(); at.IsZero() || now.Before(at) {
		return
	}
	l.conn.pinged = now
	l.conn.do(transport.Request{Op: transport.OpPing})
}

// pingDue returns when the next ping is due, zero for never.
func (l *loop) pingDue() time.Time {
	every := l.conn.session.Info().KeepAlive
	if every <= 0 {
		return time.Time{}
	}
	return l.conn.pinged.Add(every)
}
