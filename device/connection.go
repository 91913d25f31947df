package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// connection is the live session and its state. It exists from the end of Dial until the session's
// goroutine was joined. Loop only.
type connection struct {
	session    transport.Session
	progressor transport.Progressor // session, if it implements it
	upSince    time.Time            // zero while the connection does not count as up

	granted, asked transport.Features // current and requested subscriptions
	askedBy        time.Time          // deadline for the answer to asked
	single         bool               // request one feature at a time, to find the one that is refused
	lacks          transport.Features // subscriptions that the peer does not have
	askAgain       time.Time          // when to request lacks again
	lacking        *transport.Error   // the first refusal of one; nil: none
	featureDue     time.Time          // when to serve the features; zero: when poked

	ackTimeout time.Duration
	ackCheck   time.Time // when to look for an overdue answer; zero: no answer is outstanding
	late       bool      // the latest check came so late that it did not count
	silent     time.Time // when AckTimeout began to run, if it ended the session; else zero
	pinged     time.Time // when the session was last asked to ping

	plan   plan
	planAt time.Time // deadline of the plan, see plan
	why    Reason    // set with replacing
}

// plan is what happens to a connection because its credentials expire or Reconnect was called.
//
//	keep --> renew --> renewing --> keep or renew, with the new credentials
//	  |        |           |
//	  +--------+-----------+------> replacing
type plan uint8

const (
	keep      plan = iota // no time is set
	renew                 // ask for a renewal at planAt, which is by the credentials' clock
	renewing              // the session must have renewed its credentials by planAt
	replacing             // send nothing more; hang up when nothing is in flight, or at planAt
)

// lastsAt returns when the connection counts as stable. A connection that has messages in flight
// and has answered none gets until the next check for an overdue answer.
func (l *loop) lastsAt() time.Time {
	at := l.conn.upSince.Add(l.c.set.StableTime)
	if at.Before(l.conn.ackCheck) && l.c.outbox.unanswered(l.conn.upSince) {
		return l.conn.ackCheck
	}
	return at
}

// workedFor returns how long the connection worked. One that was cut for a missing answer worked
// until AckTimeout began to run.
func (k *connection) workedFor() time.Duration {
	if !k.silent.IsZero() {
		return k.silent.Sub(k.upSince)
	}
	return time.Since(k.upSince)
}

// stable reports whether k worked for StableTime, which resets the count of retries.
func (l *loop) stable(k *connection) bool { return k.workedFor() >= l.c.set.StableTime }

// ackEvery returns the interval of checks for an overdue answer. A Progressor is asked more often
// than once per AckTimeout, because the kernel reports how much is unsent at that moment, but not
// when that changed.
func (k *connection) ackEvery() time.Duration {
	if k.progressor == nil {
		return k.ackTimeout
	}
	return k.ackTimeout / 8
}

const (
	// stopped is by how much a check is late when the process was stopped, by a signal or with its
	// virtual machine. The answers may have arrived meanwhile: the session gets readTime to read them.
	stopped  = time.Second
	readTime = 2 * time.Second
)

// overdue reports whether an answer is outstanding and the connection made no progress for too
// long. If not, it sets the time of the next check.
func (l *loop) overdue(now time.Time) bool {
	if l.conn.ackCheck.IsZero() || now.Before(l.conn.ackCheck) {
		return false
	}
	if !l.conn.late && now.Sub(l.conn.ackCheck) > stopped {
		l.conn.late, l.conn.ackCheck = true, now.Add(readTime)
		return false
	}
	l.conn.late = false
	from, more, ok := l.c.outbox.answerDueFrom()
	if !ok {
		l.conn.ackCheck = time.Time{}
		return false
	}
	from = l.conn.lastProgress(from, more)
	due := from.Add(l.conn.ackTimeout)
	if !now.Before(due) {
		l.conn.silent = from
		return true
	}
	l.conn.ackCheck = earlier(due, now.Add(l.conn.ackEvery()))
	return false
}

// lastProgress returns the later of the connection's last progress and from, which is later by more
// unless bytes wait on this side.
func (k *connection) lastProgress(from time.Time, more time.Duration) time.Time {
	var at time.Time
	var waits bool
	if k.progressor != nil {
		at, waits = k.progressor.Progress()
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
	l.request = transport.Request{Op: transport.OpPing}
	l.conn.session.Do(&l.request)
}

// pingDue returns when the next ping is due, zero for never.
func (l *loop) pingDue() time.Time {
	every := l.conn.session.Info().KeepAlive
	if every <= 0 {
		return time.Time{}
	}
	return l.conn.pinged.Add(every)
}
