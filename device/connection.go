package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// connection is the session that is live, and what belongs to it alone. It exists from the end of
// Dial until the session's goroutine was joined. Loop only.
type connection struct {
	session    transport.Session
	progressor transport.Progressor // session, if it is one
	upSince    time.Time            // zero while the connection does not count as up

	granted, asked transport.Features // what the session is subscribed to, and is asked for
	askedBy        time.Time          // when asked has to be answered
	featureDue     time.Time          // when the features are to be served; zero: when poked

	ackTimeout time.Duration
	ackCheck   time.Time // when to look for an overdue answer; zero: none is awaited
	silent     time.Time // since when an answer was owed; zero: the session was not cut for that
	pinged     time.Time // when the session was last asked to ping

	plan   plan
	planAt time.Time // when the plan is due, see there
	why    Reason    // of replacing
}

// plan is what becomes of a connection, because its credentials expire or Reconnect was called.
//
//	keep --> renew --> renewing --> keep or renew, with the new credentials
//	  |        |           |
//	  +--------+-----------+------> replacing
type plan uint8

const (
	keep      plan = iota // no time is set
	renew                 // ask for a renewal at planAt, which is by the credentials' clock
	renewing              // the session has to have renewed its credentials by planAt
	replacing             // nothing more is sent; hang up when nothing is in flight, or at planAt
)

// lastsAt returns when the connection counts as stable. One that has answered nothing yet, although
// something is in flight, is given until the loop has looked for the overdue answer.
func (l *loop) lastsAt() time.Time {
	at := l.conn.upSince.Add(l.c.set.StableTime)
	if l.conn.ackCheck.After(at) && l.c.outbox.unanswered(l.conn.upSince) {
		return l.conn.ackCheck
	}
	return at
}

// goodFor returns how long the connection was good. One that was cut because no answer came was
// good until the answer was due.
func (k *connection) goodFor() time.Duration {
	if !k.silent.IsZero() {
		return k.silent.Sub(k.upSince)
	}
	return time.Since(k.upSince)
}

// stable reports whether k was good long enough for retries to be counted anew after it.
func (l *loop) stable(k *connection) bool { return k.goodFor() >= l.c.set.StableTime }

// ackEvery returns how long the loop may wait before it looks for an overdue answer. It asks a
// Progressor more often than once in AckTimeout, because the kernel tells how much is unsent at the
// moment, and not when that changed.
func (k *connection) ackEvery() time.Duration {
	if k.progressor == nil {
		return k.ackTimeout
	}
	return k.ackTimeout / 8
}

// overdue reports whether an answer is due and the connection has made no progress for too long. If
// not, it sets when to look again.
func (l *loop) overdue(now time.Time) bool {
	if l.conn.ackCheck.IsZero() || now.Before(l.conn.ackCheck) {
		return false
	}
	from, ok := l.c.outbox.answerDueFrom()
	if !ok {
		l.conn.ackCheck = time.Time{}
		return false
	}
	from = l.conn.lastProgress(from)
	due := from.Add(l.conn.ackTimeout)
	if !now.Before(due) {
		l.conn.silent = from
		return true
	}
	l.conn.ackCheck = earlier(due, now.Add(l.conn.ackEvery()))
	return false
}

// lastProgress returns the later one of from and when the connection last made progress.
func (k *connection) lastProgress(from time.Time) time.Time {
	if k.progressor != nil {
		if at := k.progressor.Progress(); at.After(from) {
			return at
		}
	}
	return from
}

// ping asks the session for a ping when one is due, however busy it is.
func (l *loop) ping(now time.Time) {
	if at := l.pingDue(); at.IsZero() || now.Before(at) {
		return
	}
	l.conn.pinged = now
	l.request = transport.Request{Op: transport.OpPing}
	l.conn.session.Do(&l.request)
}

// pingDue returns when the session wants to be asked for its next ping, zero for never.
func (l *loop) pingDue() time.Time {
	every := l.conn.session.Info().KeepAlive
	if every <= 0 {
		return time.Time{}
	}
	return l.conn.pinged.Add(every)
}
