package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// connection is the live session and its state. It exists from the end of Dial until the session's
// goroutine was joined. Loop only.
type connection struct {
	session transport.Session
	encodes bool      // Info.Encodes of the session
	upSince time.Time // zero while the connection does not count as up
	pinged  time.Time // when the session was last asked to ping
	begun   int       // number of features that know of the session

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

// workedFor returns how long the connection worked. One that was cut for a missing answer worked
// until AckTimeout began to run.
func (k *connection) workedFor() time.Duration {
	if !k.answers.silent.IsZero() {
		return k.answers.silent.Sub(k.upSince)
	}
	return time.Since(k.upSince)
}

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

// subscriptions are those of one session to features of the hub.
type subscriptions struct {
	granted, asked transport.Features // current and requested ones
	askedBy        time.Time          // deadline for the answer to asked
	single         bool               // request one feature at a time, to find the one that is refused
	lacks          transport.Features // those that the peer does not have
	askAgain       time.Time          // when to request lacks again
	lacking        *transport.Error   // the first refusal of one; nil: none
	due            time.Time          // when to serve the features; zero: when poked
}

// grant notes that the session has the features. It reports whether the status changes.
func (s *subscriptions) grant(all transport.Features) (changed bool) {
	s.granted |= all
	s.lacks &^= all
	if changed = s.lacks == 0 && s.lacking != nil; changed {
		s.lacking = nil
	}
	return changed
}

// lackDelay is the time after which a feature that the peer refused is requested again: the peer
// may have been updated, or the refusal was about something else.
const lackDelay = 30 * time.Minute

// lack notes that the session does not have a feature. It reports whether the status changes.
func (s *subscriptions) lack(feature transport.Features, why *transport.Error) (changed bool) {
	if s.lacks == 0 {
		s.askAgain = time.Now().Add(lackDelay)
	}
	s.lacks |= feature
	if changed = s.lacking == nil; changed {
		s.lacking = &transport.Error{Kind: why.Kind, Scope: why.Scope, Op: why.Op, Proto: why.Proto,
			Err: &lackingError{feature, why.Err}}
	}
	return changed
}

// overdue reports whether the session failed to answer a subscription in time.
func (s *subscriptions) overdue(now time.Time) bool {
	return s.asked != 0 && !now.Before(s.askedBy)
}

// lackingError names the feature that a peer refused.
type lackingError struct {
	feature transport.Features
	err     error
}

func (e *lackingError) Error() string {
	text := "the peer has no " + e.feature.String()
	if e.err != nil {
		text += ": " + e.err.Error()
	}
	return text
}

func (e *lackingError) Unwrap() error { return e.err }

// renewal is what happens to a connection because its credentials expire or Reconnect was called.
type renewal struct {
	step    renewalStep
	at      time.Time // deadline of the step
	expires time.Time // end of the present credentials
	why     Reason    // set with replacing
}

// renewalStep is the state of a renewal.
//
//	keep --> renew --> renewing --> keep or renew, with the new credentials or for a further try
//	  |        |           |
//	  +--------+-----------+------> replacing
type renewalStep uint8

const (
	keep      renewalStep = iota // no time is set
	renew                        // ask for a renewal at the deadline, which is by the credentials' clock
	renewing                     // the session must have renewed its credentials by the deadline
	replacing                    // see drains; hang up when nothing is in flight, or at the deadline
)

// due returns when the step is due, by the process's clock, which reads now while the credentials'
// clock reads wall; zero for keep.
func (r *renewal) due(now, wall time.Time) time.Time {
	switch r.step {
	case keep:
		return time.Time{}
	case renew:
		return now.Add(r.at.Sub(wall))
	default:
		return r.at
	}
}

// window returns the maximum number of messages in flight, which is limit at most.
func (k *connection) window(limit int) int {
	if most := k.session.Info().Window; most > 0 {
		return min(limit, most)
	}
	return limit
}
