package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/transport"
)

// loop is the goroutine that owns the connection. Only the loop calls policies and the session's
// Send and Do, and accesses the fields of this struct.
//
//	            dialed                       lost, retryable
//	connecting --------> connected ---------------------------+
//	   ^  |                 | Reconnect                       |
//	   |  | failed,         v                                 v
//	   |  | retryable   connecting                         waiting
//	   |  +------------------------------------------------>  |
//	   +------------------------------------------------------+ delay over, or Reconnect
//
//	any --> ended: not retryable, policy or OutageLimit ends the retries, cancelled
type loop struct {
	c   *Client
	ctx *lifetime.Context // ends with Close, or with the Open that started the loop
	own *run

	attempts attempts
	events   chan event // of one session: dialed, subscribed, renewed, ended; hence capacity 4
	hangUp   func()
	conn     *connection // nil unless there is a session

	timer  loopTimer
	outage outage
	flaps  flapping
	poison poison
	pause  pause
	hold   hold
	clock  clock

	spare []outcome // buffer of reportOutcomes

	batch   []transport.Item // buffer of send; it grows with use
	request transport.Request

	calling       string // the callback that runs on this goroutine; empty: none
	joining       bool   // a session's goroutine must be joined
	holdsDialSlot bool   // the loop holds a slot of the DialLimiter
}

// event is a report of a session or its goroutine: a new session, the answer to a subscription or
// renewal, or the end of a session or attempt.
type event struct {
	session    transport.Session
	subscribed bool
	renewed    *time.Time // when the new token expires; nil: no answer to a renewal
	err        error
}

func (e *event) isEnd() bool { return e.session == nil && !e.subscribed && e.renewed == nil }

// The ids of the loop's own requests. Those of the features start at firstID.
const (
	subscribeID = 1
	renewID     = 2
	firstID     = 16
)

type phase uint8

const (
	connecting phase = iota
	connected
	waiting
	ended
)

func newLoop(c *Client, ctx *lifetime.Context, r *run) *loop {
	l := &loop{c: c, ctx: ctx, own: r, events: c.events, timer: loopTimer{poke: c.poke}}
	l.outage.since = time.Now()
	return l
}

// pass is the only code that changes the phase: it runs one phase and returns the next. run calls
// it.
func (l *loop) pass(p phase) (next phase) {
	switch p {
	case connecting:
		if next = l.connect(); next == connected {
			l.begin()
		}
	case connected:
		next = l.serve()
	case waiting:
		next = l.wait()
	case ended:
	}
	return next
}

// finish ends the loop.
func (l *loop) finish() {
	l.timer.stop()
	close(l.own.done)
}

// endAll ends all series, at the end of the loop.
func (l *loop) endAll() {
	l.endSeries(&l.outage.series)
	l.c.queue.forget()
	l.reportOutcomes(time.Now())
	if x := l.c.features(); x != nil {
		x.over(l)
	}
}
