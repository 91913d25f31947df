package device

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// loop is the goroutine that owns the connection. It alone calls the policy, the session's Send and Do, and touches what is in this struct.
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
	ctx context.Context // ends with Close, or with the Open that started the loop
	own *run

	events chan event // from the session's goroutine; capacity 2: dialed and ended of one attempt
	hangUp context.CancelFunc
	live   transport.Session // nil unless connected

	timer *time.Timer
	armed time.Time // when the timer fires; zero: not armed

	since      time.Time            // when the present outage began
	upSince    time.Time            // when the live session began; zero: there is none
	retry      int                  // number of the latest retry asked for; goes on until a session was stable
	last       retrypolicy.Decision // the decision that led to the latest attempt
	renewed    bool                 // a refusal of the credentials was answered by one more try with a fresh token
	incident   incident             // what a wait is about
	resumeAt   time.Time            // sending pauses until then; zero: it does not
	askedAbout *policies            // whose decision is being waited for

	batch [64]transport.Item
}

// event is what the session's goroutine reports: a session, or the end of one or of an attempt.
type event struct {
	session transport.Session
	err     error
}

// incident is a failure that the policy was asked about, kept so that it can be asked again.
type incident struct {
	attempt retrypolicy.Attempt
	failure *transport.Error
	reason  Reason
	tag     uint16 // Operation: the oldest refused message
	began   time.Time
}

type phase uint8

const (
	connecting phase = iota
	connected
	waiting
	ended
)

func newLoop(c *Client, ctx context.Context, r *run) *loop {
	l := &loop{c: c, ctx: ctx, own: r, events: make(chan event, 2), timer: time.NewTimer(time.Hour)}
	l.timer.Stop()
	return l
}

// run is the only code that moves from phase to phase.
func (l *loop) run() {
	defer close(l.own.done)
	defer l.timer.Stop()
	l.since = time.Now()
	for p := connecting; p != ended; {
		switch p {
		case connecting:
			p = l.connect()
		case connected:
			p = l.serve()
		case waiting:
			p = l.wait()
		}
	}
}

// connect makes one attempt.
func (l *loop) connect() phase {
	c := l.c
	ctx, cancel := context.WithCancel(l.ctx)
	l.hangUp = cancel
	c.reconnect.Store(false)
	go l.session(ctx)
	deadline := time.Now().Add(c.set.DialTimeout)
	for {
		now := time.Now()
		if !now.Before(deadline) {
			l.end()
			return l.lost(AttemptFailed, timedOut(transport.OpDial, transport.Connection, errDialTimeout, nil))
		}
		l.arm(now, deadline, l.expire(now))
		select {
		case e := <-l.events:
			if e.session == nil {
				l.hangUp()
				return l.lost(AttemptFailed, e.err)
			}
			l.live = e.session
			return connected
		case <-l.timer.C:
			l.armed = time.Time{}
		case <-c.wake:
		case <-l.ctx.Done():
			l.end()
			return ended
		}
	}
}

// session is the goroutine of one attempt: it dials, serves and reports. end joins it.
func (l *loop) session(ctx context.Context) {
	c := l.c
	s, err := c.transport.Dial(ctx, &transport.Config{Creds: c.creds, Window: c.set.Window, Queue: 1, Sink: (*sink)(c)})
	if err == nil {
		l.events <- event{session: s}
		err = s.Run(ctx)
	}
	l.events <- event{err: err}
}

// end hangs up and joins the session's goroutine, and puts back what was in flight.
func (l *loop) end() {
	l.hangUp()
	for {
		if e := <-l.events; e.session == nil {
			break
		}
	}
	l.settle()
}

// settle cleans up after the session's goroutine has ended.
func (l *loop) settle() {
	l.live = nil
	l.c.box.rewind()
}

// serve hands messages over until the session ends.
func (l *loop) serve() phase {
	c := l.c
	l.upSince = time.Now()
	window := c.set.Window
	if w := l.live.Info().Window; w > 0 {
		window = min(window, w)
	}
	c.box.connect(window)
	c.reconnect.Store(false) // one that came during the attempt has what it wanted
	c.publish(Status{State: Connected, Reason: ConnectionOK, Retry: l.retry})
	ackCheck := time.Time{} // when to look for an overdue answer; zero: nothing is in flight that was not looked at
	for {
		if c.reconnect.Swap(false) {
			l.end()
			return l.replace()
		}
		now := time.Now()
		parked := true
		if l.resumeAt.IsZero() {
			switch n := c.box.take(l.batch[:], now, c.creds.Time()); {
			case n < 0:
				l.refused(now)
				continue
			case n > 0:
				l.live.Send(l.batch[:n])
				clear(l.batch[:n])
				if ackCheck.IsZero() {
					ackCheck = now.Add(c.set.AckTimeout)
				}
				parked = false
			}
		} else if !now.Before(l.resumeAt) {
			l.resume()
			continue
		} else if p := c.policies.Load(); l.incident.failure != nil && p != l.askedAbout {
			l.pause(p, now)
			continue
		}

		if !ackCheck.IsZero() && !now.Before(ackCheck) {
			ackCheck = time.Time{}
			if oldest, ok := c.box.oldestFlight(); ok {
				ackCheck = oldest.Add(c.set.AckTimeout)
			}
			if !ackCheck.IsZero() && !now.Before(ackCheck) {
				l.end()
				return l.lost(ConnectionLost, timedOut(transport.OpRun, transport.Connection, errNoAck, nil))
			}
		}

		if !parked { // there may be more to send: look, but do not wait
			select {
			case e := <-l.events:
				return l.ended(e)
			case <-l.ctx.Done():
				l.end()
				return ended
			default:
			}
			continue
		}
		l.arm(now, ackCheck, l.resumeAt, l.expire(now))
		select {
		case e := <-l.events:
			return l.ended(e)
		case <-l.timer.C:
			l.armed = time.Time{}
		case <-c.wake:
		case <-l.ctx.Done():
			l.end()
			return ended
		}
	}
}

// ended is serve's way out when the session ended by itself.
func (l *loop) ended(e event) phase {
	l.hangUp()
	l.settle()
	return l.lost(ConnectionLost, e.err)
}

// replace goes on to a new connection after a healthy one was hung up.
func (l *loop) replace() phase {
	l.down()
	l.c.publish(Status{State: DisconnectedRetrying, Reason: Planned})
	l.c.publish(Status{State: DisconnectedRetrying, Reason: Connecting, Retry: l.retry})
	return connecting
}

// down notes the end of a session: an outage begins, and retries are counted anew if the session was stable.
func (l *loop) down() {
	l.since = time.Now()
	if l.since.Sub(l.upSince) >= l.c.set.StableTime {
		l.retry, l.last, l.renewed = 0, retrypolicy.Decision{}, false
	}
	l.upSince = time.Time{}
}

// lost takes the end of a connection or attempt through filter and policy.
func (l *loop) lost(reason Reason, err error) phase {
	if l.ctx.Err() != nil {
		return ended
	}
	wasUp := !l.upSince.IsZero()
	if wasUp {
		l.down()
	}
	now := time.Now()
	failure := transport.Find(err)
	if failure == nil { // a transport that does not translate lost its connection all the same
		failure = &transport.Error{Kind: transport.Network, Scope: transport.Connection, Op: transport.OpRun, Err: err}
	}
	l.askedAbout = nil
	if !errfilter.Retryable(failure) {
		if failure.Kind != transport.Unauthorized || !wasUp || l.renewed {
			return l.giveUp(NotRetryable, failure)
		}
		// The token may have run out under a session that was good: the next dial makes a fresh one, once.
		l.renewed = true
		l.retry++
		l.c.publish(Status{State: DisconnectedRetrying, Reason: reason, Retry: l.retry, Err: failure})
		return l.again()
	}
	l.retry++
	l.incident = incident{
		attempt: retrypolicy.Attempt{
			Retry: l.retry, Scope: transport.Connection, Kind: failure.Kind, After: failure.RetryAfter,
			Elapsed: now.Sub(l.since), Last: l.last, Rand: l.c.set.Rand(), Err: failure,
		},
		failure: failure, reason: reason, began: now,
	}
	return waiting
}

// wait asks the policy about the incident and sleeps as it says.
func (l *loop) wait() phase {
	c := l.c
	var until time.Time
	for {
		now := time.Now()
		if p := c.policies.Load(); p != l.askedAbout {
			l.askedAbout = p
			d := p.decide(l.incident.attempt)
			limit := c.set.OutageLimit
			if !d.Retry || limit > 0 && l.incident.attempt.Elapsed+d.Delay > limit {
				return l.giveUp(RetryExpired, retriesEnded(l.incident.failure))
			}
			l.last = d
			until = l.incident.began.Add(d.Delay)
			c.publish(Status{State: DisconnectedRetrying, Reason: l.incident.reason, Retry: l.retry, Delay: d.Delay, Err: l.incident.failure})
		}
		if !now.Before(until) || c.reconnect.Swap(false) {
			return l.again()
		}
		l.arm(now, until, l.expire(now))
		select {
		case <-l.timer.C:
			l.armed = time.Time{}
		case <-c.wake:
		case <-l.ctx.Done():
			return ended
		}
	}
}

// again goes on to the next attempt.
func (l *loop) again() phase {
	l.incident = incident{}
	l.c.publish(Status{State: DisconnectedRetrying, Reason: Connecting, Retry: l.retry})
	return connecting
}

// giveUp makes the client Disconnected. Enqueued messages stay for the next Open; calls of Send end with the failure.
func (l *loop) giveUp(reason Reason, failure *transport.Error) phase {
	c := l.c
	c.mu.Lock()
	mine := !l.own.over
	if mine {
		l.own.over = true
		c.publishLocked(Status{State: Disconnected, Reason: reason, Retry: l.retry, Err: failure})
		c.box.halt(failure)
	}
	c.mu.Unlock()
	return ended
}

// refused asks the message policy about the oldest message that the service does not take for now, and pauses all sending as it says. A message
// for which it stops fails alone; then the next is asked about.
func (l *loop) refused(now time.Time) {
	tag, r, ok := l.c.box.oldestRefused()
	if !ok {
		return
	}
	failure := r.err
	l.incident = incident{
		attempt: retrypolicy.Attempt{
			Retry: r.count, Scope: transport.Operation, Kind: failure.Kind, After: failure.RetryAfter,
			Elapsed: now.Sub(r.since), Last: r.last, Rand: l.c.set.Rand(), Err: failure,
		},
		failure: failure, reason: Paused, tag: tag, began: now,
	}
	l.pause(l.c.policies.Load(), now)
}

// pause asks p about the incident of a refused message and stops sending as it says.
func (l *loop) pause(p *policies, now time.Time) {
	l.askedAbout = p
	d := p.decide(l.incident.attempt)
	if !d.Retry {
		l.c.box.fail(l.incident.tag, retriesEnded(l.incident.failure))
		l.resumeAt, l.incident = time.Time{}, incident{}
		return
	}
	l.c.box.decided(l.incident.tag, d)
	l.resumeAt = l.incident.began.Add(d.Delay)
	l.c.publish(Status{State: Connected, Reason: Paused, Retry: l.incident.attempt.Retry, Delay: d.Delay, Err: l.incident.failure})
}

// resume ends a pause: what was refused goes first.
func (l *loop) resume() {
	l.resumeAt, l.incident = time.Time{}, incident{}
	l.c.box.requeue()
	l.c.publish(Status{State: Connected, Reason: ConnectionOK, Retry: l.retry})
}

// expire ends the messages whose time is over and returns when to look again, zero for never.
func (l *loop) expire(now time.Time) time.Time {
	wall := l.c.creds.Time()
	next := l.c.box.expire(wall)
	if next.IsZero() {
		return next
	}
	return now.Add(next.Sub(wall))
}

// arm makes the one timer fire at the earliest of the given times; zero times do not count. It is only ever moved to an earlier time: when it
// fires too soon, the loop looks at everything and arms it again.
func (l *loop) arm(now time.Time, times ...time.Time) {
	var at time.Time
	for _, t := range times {
		if !t.IsZero() && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	if at.IsZero() || !l.armed.IsZero() && !at.Before(l.armed) {
		return
	}
	l.armed = at
	l.timer.Reset(at.Sub(now))
}

// sink is the Client as its sessions see it.
type sink Client

func (s *sink) Done(tag uint16, err error) { s.box.done(tag, err) }

// Reply has nothing to answer: the client makes no requests.
func (s *sink) Reply(uint32, transport.Reply) {}

// Deliver takes nothing: the client subscribes to nothing.
func (s *sink) Deliver(*transport.Delivery) bool { return false }
