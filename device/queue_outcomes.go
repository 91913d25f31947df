package device

import (
	"github.com/hubline-iot/hubline/transport"
)

// A policy with memory learns how attempts to connect and messages ended. The loop reports each
// attempt once. An attempt to connect has failed, or has succeeded when its connection was up for
// StableTime or ended as planned. A message was acknowledged or refused, or its connection was
// lost.

// outcome is what the loop has to tell the series of a message.
type outcome struct {
	series *series
	ended  bool             // an attempt ended, with err
	err    *transport.Error // nil: acknowledged
	retry  int              // number of the attempt, 0 for the first
	over   bool             // the series ends
}

// noteLocked records that the attempt of slot s ended with err. over ends the series: the message
// leaves the queue, or begins a new one.
func (q *queue) noteLocked(s *slot, err *transport.Error, over bool) {
	if s.series == nil {
		return
	}
	o := outcome{series: s.series, ended: true, err: err, over: over}
	if s.refusal != nil {
		o.retry = s.refusal.count
	}
	if over {
		s.series = nil
	}
	q.tellLocked(o)
}

// forgetLocked records that the series of slot s ends.
func (q *queue) forgetLocked(s *slot) {
	if s.series != nil {
		q.tellLocked(outcome{series: s.series, over: true})
		s.series = nil
	}
}

func (q *queue) tellLocked(o outcome) {
	if len(q.outcomes) == 0 {
		q.poke()
	}
	q.outcomes = append(q.outcomes, o)
}

// forget ends the series of all messages.
func (q *queue) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := q.head; i != none; i = q.slots[i].next {
		q.forgetLocked(&q.slots[i])
	}
}

// remember keeps the series of a message.
func (q *queue) remember(tag uint16, seq uint64, s *series) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if to := &q.slots[tag]; to.seq == seq && to.state != slotFree {
		to.series = s
	} else {
		q.tellLocked(outcome{series: s, over: true})
	}
}

// collect returns the outcomes since its last call, in order. The next call reuses their memory.
func (q *queue) collect() []outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.outcomes, q.collected = q.collected[:0], q.outcomes
	return q.collected
}
