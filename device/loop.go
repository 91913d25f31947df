package device

import (
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// loop is the goroutine that owns the connection. It alone calls the policy, the session's Send and
// Do, and touches what is in this struct.
//
//	            dialed                       lost, retryable
//	connecting --------> connected ---------------------------+
//	   ^  |                 | Reconnect                       |
//	   |  | failed,         v                                 v
//	   |  | retryable   connecting                         waiting
//	   |  +------------------------------------------------>  |
//	   +------------------------------------------------------+ delay over, or Reconnect
//
//	any --> ended: not retryable, policy or OutageLimit says stop, cancelled
type loop struct {
	c   *Client
	ctx *lifetime // ends with Close, or with the Open that started the loop
	own *run

	events chan event // of one session: dialed, subscribed, renewed, ended; so its capacity is 4
	hangUp func()
	conn   *connection // nil unless there is a session

	timer *time.Timer // pokes the loop; nil until it is needed
	armed time.Time   // when it does
	fired atomic.Bool // it did since it was armed; on boards it may do so a tick too early

	since   time.Time            // when the present outage began
	retry   int                  // number of the latest retry asked for; goes on until a session was stable
	last    retrypolicy.Decision // the decision that led to the latest attempt
	renewed bool                 // a refusal of the credentials was answered by one more try with a fresh token
	damage  errfilter.Damage     // failures in a row that may be damage on the way
	outage  question             // what the wait for the next attempt is about
	reason  Reason               // and what it is called
	failure *transport.Error     // the latest, of connections
	spread  time.Duration        // random part of that wait
	pause   pause
	flaps   flapping
	clock   clock

	observing  *policies // whose message policy gets outcomes
	spare      []outcome // of reportOutcomes
	unreported *policies // whose connection policy has to learn how the latest attempt ended; nil: it has
	hold       hold

	batch   []transport.Item // of send; it grows with use
	request transport.Request

	calling string // the callback that runs on this goroutine, empty for none
	joining bool   // a session's goroutine is to be joined
	placed  bool   // the loop holds a place of the DialLimiter
}

// event is what a session and its goroutine report: a session, the answer to a subscription or to a
// renewal, or the end of a session or attempt.
type event struct {
	session    transport.Session
	subscribed bool
	renewed    bool
	expires    time.Time // of renewed
	err        error
}

func (e *event) isEnd() bool { return e.session == nil && !e.subscribed && !e.renewed }

// The ids of the requests that the loop makes itself. Those of the features are above.
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

func newLoop(c *Client, ctx *lifetime, r *run) *loop {
	l := &loop{c: c, ctx: ctx, own: r, events: c.events, since: time.Now()}
	return l
}

// pass is the only code that moves from phase to phase: it does what is to be done in one, and
// returns the next. run calls it.
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

// finish is the end of the loop.
func (l *loop) finish() {
	if l.timer != nil {
		l.timer.Stop()
	}
	close(l.own.done)
}
