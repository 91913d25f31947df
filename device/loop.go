package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/retrypolicy"
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
//	restarting --> connecting: a Start or Open after that, in a new loop
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

// The ids of the loop's own requests, which no answer of a hub can have. Those of the features
// start at firstID, those of answers to methods at firstID with the methodIDs bit.
const (
	subscribeID = methodIDs
	renewID     = methodIDs + 1
	firstID     = 16
)

type phase uint8

const (
	restarting phase = iota
	connecting
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

// rand draws a random number for a policy.
func (l *loop) rand() uint64 {
	l.calls("Options.Rand")
	n := l.c.set.Rand()
	l.called()
	return n
}

// wall reads the credentials' clock.
func (l *loop) wall() time.Time {
	l.calls("Credentials.Now")
	at := l.c.creds.Time()
	l.called()
	return at
}

// expire ends the messages whose Expires has passed, and returns when to call it again, zero for
// never.
func (l *loop) expire(now time.Time) time.Time {
	wall := l.wall()
	next := l.c.queue.expire(wall)
	if next.IsZero() {
		return next
	}
	return now.Add(next.Sub(wall))
}

// attempt returns an Attempt about scope at this moment; the caller adds the failure.
func (l *loop) attempt(scope transport.Scope, retry int, now time.Time) retrypolicy.Attempt {
	return retrypolicy.Attempt{Retry: retry, Scope: scope, Now: now}
}

// clockJumped checks the clock and reports a jump to the trace.
func (l *loop) clockJumped(now time.Time) time.Duration {
	by := l.clock.jump(l.wall(), now)
	if t := l.c.set.Trace; by != 0 && t != nil && t.ClockJump != nil {
		l.calls("Trace.ClockJump")
		t.ClockJump(by)
		l.called()
	}
	return by
}

// calls notes the callback that the loop is about to call; called notes that it has returned.
func (l *loop) calls(name string) { l.calling = name }

func (l *loop) called() { l.calling = "" }

// worker is the loop's side of the goroutine that dials and serves a session.
type worker struct {
	attempts attempts
	events   chan event // of one session: dialed, subscribed, renewed, ended; hence capacity 4
	hangUp   func()
	running  bool     // the goroutine must be joined
	slot     dialSlot // of the DialLimiter; once the goroutine has begun, it releases the slot
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

// begin starts the goroutine of an attempt to connect.
func (w *worker) begin(l *loop) {
	ctx, end := lifetime.Within(l.ctx)
	w.hangUp, w.running = end, true
	w.attempts.begin(l, ctx)
}

// ended records that the goroutine has reported its end.
func (w *worker) ended() {
	w.running = false
	w.hangUp()
}

// join hangs up and waits for the goroutine, if one runs.
func (w *worker) join() {
	if !w.running {
		return
	}
	w.hangUp()
	for {
		if e := <-w.events; e.isEnd() {
			break
		}
	}
	w.running = false
}

// discard drops what a session has reported after it had ended, in answer to a Do.
func (w *worker) discard() {
	for len(w.events) > 0 {
		<-w.events
	}
}
