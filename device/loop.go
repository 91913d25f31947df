package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/lifetime"
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

	// Each part owns its state: only its methods change it.
	worker worker
	conn   *connection // nil unless there is a session
	outage outage
	flaps  flapping
	poison poison
	pause  pause
	gate   gate
	clock  clock
	timer  loopTimer

	calling string // the callback that runs on this goroutine; empty: none
}

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
	return &loop{
		c: c, ctx: ctx, own: r, worker: worker{events: c.events, slot: dialSlot{of: c.set.Dials}},
		outage: outage{since: time.Now()}, timer: loopTimer{poke: c.poke},
	}
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
