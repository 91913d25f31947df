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
	live   transport.Session // nil unless connected

	timer *time.Timer // pokes the loop; nil until it is needed
	armed time.Time   // when it does
	fired atomic.Bool // it did since it was armed; on boards it may do so a tick too early

	since   time.Time            // when the present outage began
	upSince time.Time            // when the live session began; zero: there is none
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

	// The live session's credentials, by their clock.
	renewAt time.Time // when to renew them; zero: never
	renewBy time.Time // when the session has to have done so, by the process's clock; zero: it is not asked to
	drainBy time.Time // when to replace it at the latest, by the process's clock; zero: it is not being replaced
	leaving Reason    // why it is being replaced
	pinged  time.Time // when the live session was last asked to ping

	taught *policies // whose message policy is told outcomes
	spare  []outcome // of learn
	untold *policies // whose connection policy is to be told how the latest attempt ended; nil: it was told
	hold   hold

	granted, asked transport.Features // what the live session is subscribed to, and is asked for
	askedBy        time.Time          // when that has to be answered
	featureDue     time.Time          // when the features are to be served; zero: when poked

	ackTimeout time.Duration        // of the live session
	progressor transport.Progressor // the live session, if it is one
	silent     time.Time            // since when a session that was cut had owed an answer; zero: it was not cut for that
	// when to look for an overdue answer; zero: nothing is in flight that was not looked at
	ackCheck time.Time

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

// end hangs up and joins the session's goroutine, and puts back what was in flight.
func (l *loop) end() {
	l.hangUp()
	for {
		if e := <-l.events; e.isEnd() {
			break
		}
	}
	l.joining = false
	l.settle()
}

// settle cleans up after the session's goroutine has ended.
func (l *loop) settle() {
	l.live, l.progressor, l.asked, l.granted = nil, nil, 0, 0
	for len(l.events) > 0 { // what the session answered inside Do when it had ended already
		<-l.events
	}
	if l.pause.until.IsZero() {
		l.refused(false) // what the service asked for with its last breath counts
	}
	l.c.box.rewind()
	if x := l.c.features(); x != nil {
		x.over(l)
	}
	l.learn(time.Now())
}

// begin opens the window for a session that is up, and tells so.
func (l *loop) begin() {
	c := l.c
	info := l.live.Info()
	window := c.set.Window
	if info.Window > 0 {
		window = min(window, info.Window)
	}
	l.ackTimeout = c.set.AckTimeout
	if !c.set.ownAck {
		l.ackTimeout = max(l.ackTimeout, info.AckTimeout)
	}
	c.box.connect(window)
	c.reconnect.Store(false) // one that came during the attempt has what it wanted
	l.progressor, _ = l.live.(transport.Progressor)
	l.pinged, l.ackCheck, l.silent = l.upSince, time.Time{}, time.Time{}
	if x := c.features(); x != nil {
		x.begin()
	}
	if l.pause.until.IsZero() {
		l.tellOK()
	} else {
		l.tellPause(l.upSince)
	}
}

// serve hands messages over until the session ends. Here and in what it calls while nothing happens
// little is put on the stack, so that it stays at 2 KB.
func (l *loop) serve() phase {
	for {
		next, idle := l.turn()
		if next == connected {
			next = l.await(idle)
		}
		if next != connected {
			return next
		}
	}
}

// await takes what happens to the session, and waits for it if idle. Otherwise there may be more to
// send. It is apart from serve for its frame of 200 bytes, which is not on the stack during a turn.
func (l *loop) await(idle bool) phase {
	if idle {
		select {
		case e := <-l.events:
			return l.heard(e)
		case <-l.c.wake:
			return connected
		case <-l.ctx.Done():
			return l.leave()
		}
	}
	select {
	case e := <-l.events:
		return l.heard(e)
	case <-l.ctx.Done():
		return l.leave()
	default:
		return connected
	}
}

// heard takes what a session that is up reports.
func (l *loop) heard(e event) phase {
	switch {
	case e.isEnd():
		return l.ended(e)
	case e.renewed:
		l.tokenRenewed(e.expires, e.err, time.Now())
		return connected
	}
	if x := l.c.features(); x != nil {
		if failure := l.subscribed(x, e.err); failure != nil {
			return l.cut(failure)
		}
	}
	return connected
}

// turn does what is to be done now. It returns the phase to go on to, and whether there was nothing
// to do; then the timer is armed for when there is.
func (l *loop) turn() (next phase, idle bool) {
	now := time.Now()
	l.learn(now)
	if x := l.c.features(); x != nil {
		l.serveFeatures(x, now)
		if l.ungranted(now) {
			return l.cut(timedOut(transport.OpSubscribe, transport.Connection, errNoGrant, nil)), false
		}
	}
	if l.clockJumped(now) > 0 {
		l.end()
		return l.lost(ClockJumped, errJumped), false
	}
	if reason, yes := l.replaceNow(now); yes {
		l.end()
		return l.replace(reason), false
	}
	if l.overdue(now) {
		return l.cut(timedOut(transport.OpRun, transport.Connection, errNoAck, nil)), false
	}
	if at := l.stableAt(); !at.IsZero() && !now.Before(at) {
		l.tried(nil, now)
	}
	l.calmDown(now)
	l.ping(now)
	idle = l.handOver(now)
	if idle {
		l.arm(now, l.due(now))
	}
	return connected, idle
}

// handOver gives the session what may go now, and reports whether there was nothing.
func (l *loop) handOver(now time.Time) (idle bool) {
	switch {
	case !l.drainBy.IsZero():
		return true // nothing more goes out on this session
	case l.pause.until.IsZero() && l.c.box.anyRefused():
		l.refused(true)
	case l.pause.until.IsZero():
		return l.held(now) || l.send(now)
	case l.c.policies.Load() != l.pause.askedOf:
		l.askAgain(now)
	case !now.Before(l.pause.until):
		l.resume()
	default:
		return true
	}
	return false
}

// send gives the session a batch of messages, and reports whether there were none.
func (l *loop) send(now time.Time) (none bool) {
	c := l.c
	batch := c.box.take(l.batch[:0], now, l.clock.wall)
	if len(batch) == 0 {
		return true
	}
	if batch = l.admit(batch, now); len(batch) == 0 {
		return false // look again: there may be a hold now, or more behind what was refused
	}
	l.live.Send(batch)
	if t := c.set.Trace; t != nil && t.Sent != nil {
		l.calls("Trace.Sent")
		t.Sent(len(batch))
		l.called()
	}
	clear(batch)
	l.batch = batch
	if l.ackCheck.IsZero() {
		l.ackCheck = now.Add(l.ackEvery())
	}
	return false
}

// ackEvery returns how long the loop may wait before it looks for an overdue answer. It asks a
// Progressor more often than once in AckTimeout, because the kernel tells how much is unsent at the
// moment, and not when that changed.
func (l *loop) ackEvery() time.Duration {
	if l.progressor == nil {
		return l.ackTimeout
	}
	return l.ackTimeout / 8
}

// overdue reports whether nothing has got on for too long although an answer is due, and settles
// when to look again.
func (l *loop) overdue(now time.Time) bool {
	if l.ackCheck.IsZero() || now.Before(l.ackCheck) {
		return false
	}
	from, ok := l.c.box.answerDueFrom()
	if !ok {
		l.ackCheck = time.Time{}
		return false
	}
	from = l.lastProgress(from)
	due := from.Add(l.ackTimeout)
	if !now.Before(due) {
		l.silent = from
		return true
	}
	l.ackCheck = earlier(due, now.Add(l.ackEvery()))
	return false
}

// lastProgress returns the later one of from and when the live session's connection last got on.
func (l *loop) lastProgress(from time.Time) time.Time {
	if l.progressor != nil {
		if at := l.progressor.Progress(); at.After(from) {
			return at
		}
	}
	return from
}

// leave is serve's way out when the client closes.
func (l *loop) leave() phase {
	if x := l.c.features(); x != nil {
		l.serveFeatures(x, time.Now())
	}
	l.end()
	l.down(nil)
	return ended
}

// calmAt returns when a connection after flaps counts as stable, zero if there were none.
func (l *loop) calmAt() time.Time {
	if l.flaps.flaps == 0 {
		return time.Time{}
	}
	return l.lastsAt()
}

// calmDown ends a series of flaps once a connection lasts, and tells so if it was one to speak of.
func (l *loop) calmDown(now time.Time) {
	if at := l.calmAt(); at.IsZero() || now.Before(at) {
		return
	}
	told := l.flaps.flaps > 1
	l.flaps = flapping{before: l.flaps.before}
	if !told {
		return
	}
	if l.pause.until.IsZero() {
		l.tellOK()
	} else {
		l.tellPause(time.Now())
	}
}

// ended is serve's way out when the session ended by itself.
func (l *loop) ended(e event) phase {
	l.joining = false
	l.hangUp()
	l.over()
	l.settle()
	return l.lost(ConnectionLost, e.err)
}

// cut is serve's way out when the session is not good anymore.
func (l *loop) cut(failure error) phase {
	l.over()
	l.end()
	return l.lost(ConnectionLost, failure)
}

// over notes, before the outbox is rewound, what was under way when a session was lost.
func (l *loop) over() {
	l.flaps.end(l.evidence(), l.stable())
}

func (l *loop) evidence() evidence {
	e := l.c.box.evidence()
	if x := l.c.features(); x != nil {
		e.acknowledged += x.received()
	}
	return e
}

// lastsAt returns when the live session counts as stable. One that has answered nothing yet,
// although something is in flight, is given until the loop has looked for the overdue answer.
func (l *loop) lastsAt() time.Time {
	at := l.upSince.Add(l.c.set.StableTime)
	if l.ackCheck.After(at) && l.c.box.unanswered(l.upSince) {
		return l.ackCheck
	}
	return at
}

// goodFor returns how long the live session was good. A session that was cut because no answer came
// was good until the answer was due.
func (l *loop) goodFor() time.Duration {
	if !l.silent.IsZero() {
		return l.silent.Sub(l.upSince)
	}
	return time.Since(l.upSince)
}

// stable reports whether the live session was good long enough for retries to be counted anew after
// it.
func (l *loop) stable() bool { return l.goodFor() >= l.c.set.StableTime }

const (
	// usefulTime is the least time for which a useful connection was up. It bounds how often a peer
	// that acknowledges a message and hangs up is dialed.
	usefulTime = 500 * time.Millisecond
	// usefulShare is how many times longer than the delay before it a useful connection was up.
	usefulShare = 5
)

// useful reports whether the session that failure ended made progress although it was not stable: a
// message was acknowledged or received on it, and it was good for much longer than the delay before
// it. After a failure with a slow pace (errfilter.Slow) the delay stands.
func (l *loop) useful(failure *transport.Error) bool {
	up := l.goodFor()
	return up >= usefulTime && up/usefulShare >= l.last.Delay && l.evidence().acknowledged > l.flaps.before &&
		(failure == nil || errfilter.OfKind(failure.Kind).Pace == errfilter.Normal)
}

// ping asks the session for a ping when one is due, however busy it is.
func (l *loop) ping(now time.Time) {
	if at := l.pingDue(); at.IsZero() || now.Before(at) {
		return
	}
	l.pinged = now
	l.request = transport.Request{Op: transport.OpPing}
	l.live.Do(&l.request)
}

// pingDue returns when the session wants to be asked for its next ping, zero for never.
func (l *loop) pingDue() time.Time {
	every := l.live.Info().KeepAlive
	if every <= 0 {
		return time.Time{}
	}
	return l.pinged.Add(every)
}

// down notes the end of a session: an outage begins, and retries are counted anew if the session
// was stable.
func (l *loop) down(err error) {
	if t := l.c.set.Trace; t != nil && t.SessionEnd != nil {
		l.calls("Trace.SessionEnd")
		t.SessionEnd(err, time.Since(l.upSince))
		l.called()
	}
	var failure *transport.Error
	if err != nil && !l.stable() {
		failure = ofTransport(err)
	}
	l.tried(failure, time.Now())
	switch {
	case l.stable():
		l.retry, l.last, l.renewed, l.flaps = 0, retrypolicy.Decision{}, false, flapping{}
	case l.useful(failure):
		l.retry, l.last = 0, retrypolicy.Decision{}
	}
	l.since = time.Now()
	l.upSince = time.Time{}
}

// expire ends the messages whose time is over and returns when to look again, zero for never.
func (l *loop) expire(now time.Time) time.Time {
	wall := l.wall()
	next := l.c.box.expire(wall)
	if next.IsZero() {
		return next
	}
	return now.Add(next.Sub(wall))
}
