package device

import (
	"errors"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/internal/errchain"
	"github.com/hubline-iot/hubline/transport"
)

// A peer that does not take a message may just end the connection. Sent again first on the next
// one, the message would block the queue for ever. But a network that cuts connections looks the
// same, and so does a hub whose quota is used up: it ends the connection for any message. So a
// message that was first in flight at several losses in a row is only suspected. It is refused when
//
//   - connections stay up as long as it is not sent: each is first left quiet, for far longer than
//     it took to lose one;
//   - they are lost soon after it was sent, alone;
//   - and at last one is lost so right after it has acknowledged another message.
//
// Any other end of a connection clears it, and so does an acknowledgement after it was sent. While
// there is no other message, it is sent again like every message.
//
// The loss of a part of the connection, such as the link for messages over AMQP, counts like that
// of a connection. The trials go on over the same session then.

const (
	// suspectLosses is the number of losses in a row that make a suspect, and trialLosses the number
	// of further ones, alone, before another message goes first.
	suspectLosses = 3
	trialLosses   = 4
	// quickLoss is the longest time from handing a message over to a loss that may be due to it.
	quickLoss = 5 * time.Second
	// quietShare is how many times longer than that time a connection must stay up before.
	quietShare = 20
	minQuiet   = time.Second
)

// poison is the suspicion against the message that was first in flight at the latest losses. Loop
// only.
type poison struct {
	seq     uint64        // the message; 0: none
	last    uint64        // messages up to this one are sent one at a time; 0: none
	losses  int           // in a row
	slowest time.Duration // the longest time from handing it over to a loss

	// Of the live connection.
	quiet        time.Duration // how long nothing is sent
	quietUntil   time.Time
	acknowledged uint64 // total at its begin
}

func (p *poison) suspected() bool { return p.losses >= suspectLosses }

// beginTrial limits the window of a new connection, or of one that has lost a part, while there is
// a suspicion.
func (l *loop) beginTrial(window int) int {
	p := &l.poison
	p.quiet, p.quietUntil = 0, time.Time{}
	p.acknowledged = l.c.queue.evidence(slotInFlight).acknowledged
	if !l.suspicious() {
		return window
	}
	if p.suspected() {
		p.quiet = max(minQuiet, quietShare*p.slowest)
		p.quiet += time.Duration(l.rand() % uint64(p.quiet)) // a link may be cut at fixed intervals
		p.quietUntil = time.Now().Add(p.quiet)
	}
	return 1
}

// suspicious reports whether messages must be sent one at a time, and ends a suspicion that is
// over.
func (l *loop) suspicious() bool {
	p := &l.poison
	if p.last == 0 {
		return false
	}
	first, there := l.c.queue.oldest(p.seq)
	if !there {
		p.seq, p.losses = 0, 0
	}
	if !there && first > p.last {
		*p = poison{}
	}
	return p.last != 0
}

// onTrial prepares the queue for the next message on a connection with a suspicion. It reports
// whether nothing may be sent yet.
func (l *loop) onTrial(now time.Time) (wait bool) {
	p := &l.poison
	if p.last == 0 {
		return false
	}
	if !l.suspicious() {
		l.c.queue.aim(0, false)
		l.c.queue.connect(l.conn.window(l.c.set.Window))
		return false
	}
	if p.suspected() && now.Before(p.quietUntil) {
		return true
	}
	l.c.queue.aim(p.seq, p.losses >= suspectLosses+trialLosses &&
		l.c.queue.evidence(slotInFlight).acknowledged == p.acknowledged)
	return false
}

// judgeRefusal draws the conclusion from messages that the session has returned. The refusal of
// another message than the suspect says nothing about it.
func (l *loop) judgeRefusal() {
	_, seq, r, _, _ := l.c.queue.oldestRefused()
	var why *transport.Error
	if errors.Is(r.err, transport.ErrOutcomeUnknown) { // it was in flight
		why, _ = errchain.First(r.err, isLoss).(*transport.Error)
	}
	if why == nil && seq != l.poison.seq {
		return
	}
	l.judgeLoss(why, slotRefused)
	l.c.queue.connect(l.beginTrial(l.conn.window(l.c.set.Window)))
}

func isLoss(err error) bool {
	e, ok := err.(*transport.Error)
	return ok && e.Scope == transport.ScopeConnection
}

// judgeLoss draws the conclusion from the loss of the messages in this state, before they are
// queued again. why is nil if it was not the peer that ended the session or a part of it.
func (l *loop) judgeLoss(why *transport.Error, state slotState) {
	p, e := &l.poison, l.c.queue.evidence(state)
	took := time.Since(e.handed)
	proven := p.suspected() && e.acknowledged > p.acknowledged
	switch {
	case why == nil, l.ctx.Err() != nil, !mayBePoison(why.Kind), e.inFlight == 0, e.overtaken, took > quickLoss:
		*p = poison{}
	case p.suspected() && e.front != p.seq:
		l.c.queue.lostAlone(e.front)
	case p.suspected() && took*quietShare > p.quiet:
		p.slowest = took // it does not count: the connection was not quiet for long enough
	case e.front != p.seq:
		*p = poison{seq: e.front, last: p.last, losses: 1, slowest: took}
	case proven && p.losses >= suspectLosses+trialLosses:
		l.c.queue.refuse(e.front, poisoned(p.losses+1, e.size, why))
		*p = poison{}
	default:
		p.losses++
		p.slowest = max(p.slowest, took)
		if p.suspected() {
			p.last = max(p.last, e.newest)
			l.c.queue.lostAlone(e.front)
		}
	}
}

// mayBePoison reports whether a loss of this Kind names no reason, or only that the peer failed.
func mayBePoison(k transport.Kind) bool {
	return k == transport.Network || k == transport.Protocol || k == transport.Unavailable
}

// poisoned is the error of a message that the peer ends connections for. It shows the loss as text
// only: its Kind would be retryable.
func poisoned(losses, size int, why error) *transport.Error {
	return &transport.Error{Kind: transport.Poison, Op: transport.OpSend, Err: errors.New("the peer ended " +
		strconv.Itoa(losses) + " links or connections in a row for this message of " + strconv.Itoa(size) +
		" bytes, and took others; compare its size and content with the peer's limits: " + why.Error())}
}

// oldest returns the number of the oldest message, the largest number if there is none, and whether
// the message with number seq is there.
func (q *queue) oldest(seq uint64) (first uint64, there bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first = ^uint64(0)
	if q.head != none {
		first = q.slots[q.head].seq
	}
	for i := q.head; i != none && !there; i = q.slots[i].next {
		there = q.slots[i].seq == seq
	}
	return first, there
}

// aim makes take begin with the first queued message, or, with another, with the first of those
// other than seq that were lost alone least often, if there is one.
func (q *queue) aim(seq uint64, another bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.cursor = q.nextQueuedLocked(q.head)
	best := none
	for i := q.cursor; another && i != none; i = q.nextQueuedLocked(q.slots[i].next) {
		if s := &q.slots[i]; s.seq != seq && (best == none || s.lost < q.slots[best].lost) {
			best = i
		}
	}
	if best != none {
		q.cursor = best
	}
}

// lostAlone counts a loss with only message seq in flight.
func (q *queue) lostAlone(seq uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := q.head; i != none; i = q.slots[i].next {
		if s := &q.slots[i]; s.seq == seq && s.lost < maxLost {
			s.lost++
		}
	}
}

const maxLost = 255

// refuse ends message seq, which was lost in flight, with err.
func (q *queue) refuse(seq uint64, err *transport.Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := q.head; i != none; i = q.slots[i].next {
		if s := &q.slots[i]; s.seq == seq {
			q.totals.refused++
			q.removeLocked(i, q.outcomeLocked(i, err))
			break
		}
	}
}
