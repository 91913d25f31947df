package interop

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// ledger has what happened to each message of one sender: what the client said, what crossed the
// wire, and what arrived.
type ledger struct {
	name   string
	unread bool // the broker's answers are not read on the wire: the client's results stand for them

	mu       sync.Mutex
	messages []entry
	oldest   int       // all messages below this are acknowledged
	last     time.Time // of the last acknowledgement
	gap      time.Duration
	arrivals []int // numbers in the order of their arrival
	newest   int   // highest number on the wire
	behind   int   // first copies that were written behind a later message
	said     map[string]int
}

// entry is one message.
type entry struct {
	queued    time.Time
	ended     bool  // the client has said what became of it
	err       error // what it said
	early     bool  // it said so before the broker had acknowledged the message
	acked     chan struct{}
	isAcked   bool
	ackedAt   time.Time
	sent      int
	unmarked  int // copies after the first that were not marked
	copies    int
	firstSeen int // index in arrivals
}

var errUnanswered = errors.New("the client has not said what became of the message")

func newLedger(name string, messages int) *ledger {
	l := &ledger{name: name, messages: make([]entry, messages), said: make(map[string]int)}
	for i := range l.messages {
		l.messages[i].acked = make(chan struct{})
	}
	return l
}

// body is the payload of message n.
func (l *ledger) body(n int) []byte { return fmt.Appendf(nil, "%-60s#%06d", l.name, n) }

func (l *ledger) queued(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.messages[n].queued = time.Now()
}

// ended records the client's result.
func (l *ledger) ended(n int, err error) {
	if l.unread && err == nil {
		l.acknowledged(n)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.messages[n]
	m.ended, m.err, m.early = true, err, err == nil && !m.isAcked
	if err != nil && !errors.Is(err, errUnanswered) {
		l.said[err.Error()]++
	}
}

func (l *ledger) sent(n int, marked bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.messages[n]
	if m.sent++; m.sent > 1 && !marked {
		m.unmarked++
	}
	if m.sent == 1 && n < l.newest {
		l.behind++
	}
	l.newest = max(l.newest, n)
}

func (l *ledger) acknowledged(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.messages[n]
	if m.isAcked {
		return
	}
	m.isAcked = true
	close(m.acked)
	now := time.Now()
	m.ackedAt = now
	waited := l.messages[l.oldest].queued
	if l.last.After(waited) {
		waited = l.last
	}
	l.gap, l.last = max(l.gap, now.Sub(waited)), now
	for l.oldest < len(l.messages)-1 && l.messages[l.oldest].isAcked {
		l.oldest++
	}
}

func (l *ledger) arrived(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := &l.messages[n]
	if m.copies++; m.copies == 1 {
		m.firstSeen = len(l.arrivals)
	}
	l.arrivals = append(l.arrivals, n)
}

// overtaken reports whether the broker acknowledged a later message a second ago, or nothing for
// the time that a compared client is given. The broker acknowledges in order, so message n will not
// be acknowledged on this connection.
func (l *ledger) overtaken(n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := n + 1; i < len(l.messages); i++ {
		if m := &l.messages[i]; m.isAcked && time.Since(m.ackedAt) > time.Second {
			return true
		}
	}
	return time.Since(l.messages[n].queued) > patience && time.Since(l.last) > patience
}

// missing counts the messages that the client or the broker accepted and that have not arrived.
func (l *ledger) missing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for i := range l.messages {
		if m := &l.messages[i]; m.copies == 0 && (m.ended && m.err == nil || m.isAcked) {
			n++
		}
	}
	return n
}

// balance is the outcome of a run for one sender.
type balance struct {
	arrived                    int // different messages
	lostByBroker, lostByClient int // taken and not arrived; by the broker if it had acknowledged the message
	doubled                    int
	early                      int // results before the broker's acknowledgement
	errors, falseErrors        int // messages with an error; of these, arrived nevertheless
	behind                     int // first copies that were written behind a later message
	disorder                   int // first copies that arrived so, of messages that were sent once
	unmarked, resent           int // copies on the wire, after the first
	gap                        time.Duration
	said                       string
}

func (l *ledger) balance() (b balance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.messages {
		m := &l.messages[i]
		switch {
		case m.copies > 0:
			b.arrived++
			b.doubled += m.copies - 1
		case m.isAcked:
			b.lostByBroker++
		case m.ended && (m.err == nil || errors.Is(m.err, errUnanswered)):
			b.lostByClient++
		}
		if m.early {
			b.early++
		}
		if m.err != nil && !errors.Is(m.err, errUnanswered) {
			b.errors++
			if m.copies > 0 {
				b.falseErrors++
			}
		}
		b.resent += max(0, m.sent-1)
		b.unmarked += m.unmarked
	}
	highest := -1
	for i, n := range l.arrivals {
		if m := &l.messages[n]; m.firstSeen == i && n < highest && m.sent < 2 {
			b.disorder++
		}
		highest = max(highest, n)
	}
	b.gap, b.behind = l.gap, l.behind
	var texts []string
	for text, n := range l.said {
		texts = append(texts, fmt.Sprintf("%d × %s", n, text))
	}
	b.said = strings.Join(texts, "; ")
	return b
}
