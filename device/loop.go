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

	events chan event // of one attempt: dialed, subscribed, ended; so its capacity is 3
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
	spread     time.Duration        // random part of this wait
	flaps      flapping
	clock      clock

	// The live session's credentials, by their clock.
	expires time.Time // zero: never
	renewAt time.Time // when to replace the session; zero: never
	drainBy time.Time // when to replace it at the latest, by the process's clock; zero: it is not being replaced

	batch [64]transport.Item
	ref   []byte // of the delivery that is being settled
}

// event is what a session and its goroutine report: a session, the answer to the subscription, or the end of a session or attempt.
type event struct {
	session    transport.Session
	subscribed bool
	err        error
}

// subscribeID is the id of the one request that is replied to.
const subscribeID = 1

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
	l := &loop{c: c, ctx: ctx, own: r, events: c.events, timer: time.NewTimer(time.Hour)}
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
	if !l.queueToDial() {
		return ended
	}
	ctx, cancel := context.WithCancel(l.ctx)
	l.hangUp = cancel
	c.reconnect.Store(false)
	began := time.Now()
	deadline := began.Add(c.set.DialTimeout)
	go l.session(ctx)
	for {
		now := time.Now()
		if !now.Before(deadline) {
			l.end()
			return l.lost(AttemptFailed, timedOut(transport.OpDial, transport.Connection, errDialTimeout, nil))
		}
		l.arm(now, deadline, l.expire(now))
		select {
		case e := <-l.events:
			switch {
			case e.session != nil && c.set.OnMessage != nil:
				l.live = e.session
				l.live.Do(&transport.Request{ID: subscribeID, Op: transport.OpSubscribe, Want: transport.Messages})
			case e.session != nil:
				l.live = e.session
				return l.connected(began)
			case e.subscribed && e.err == nil:
				return l.connected(began)
			case e.subscribed:
				l.end()
				return l.lost(AttemptFailed, ofConnection(e.err))
			default:
				l.hangUp()
				l.settle()
				return l.lost(AttemptFailed, e.err)
			}
		case <-l.timer.C:
			l.armed = time.Time{}
		case <-c.wake:
		case <-l.ctx.Done():
			l.end()
			return ended
		}
	}
}

// queueToDial waits for a place of the shared limiter, which the session's goroutine gives back. It returns false when the loop shall end.
func (l *loop) queueToDial() bool {
	limiter := l.c.set.Dials
	if limiter == nil {
		return true
	}
	var at time.Time // our turn; zero: we have no place yet
	for {
		now := time.Now()
		places := limiter.places
		if !at.IsZero() {
			if !now.Before(at) {
				return true
			}
			places = nil
		}
		l.arm(now, at, l.expire(now))
		select {
		case places <- struct{}{}:
			at = limiter.turn(now)
		case <-l.timer.C:
			l.armed = time.Time{}
		case <-l.c.wake:
		case <-l.ctx.Done():
			if !at.IsZero() {
				<-limiter.places
			}
			return false
		}
	}
}

// session is the goroutine of one attempt: it dials, serves and reports. end joins it.
func (l *loop) session(ctx context.Context) {
	c := l.c
	s, err := c.transport.Dial(ctx, &transport.Config{Creds: c.creds, Window: c.set.Window, Queue: c.set.Inbox, Sink: (*sink)(c)})
	if c.set.Dials != nil {
		<-c.set.Dials.places
	}
	if err == nil {
		l.events <- event{session: s}
		err = s.Run(ctx)
	}
	l.events <- event{err: err}
}

// connected notes that a session is up.
func (l *loop) connected(began time.Time) phase {
	info := l.live.Info()
	l.upSince = time.Now()
	l.flaps.begin(l.c.box.evidence())
	l.drainBy = time.Time{}
	l.planRenewal(info.Expires)
	if t := l.c.set.Trace; t != nil && t.Connected != nil {
		t.Connected(info, l.upSince.Sub(began))
	}
	return connected
}

// planRenewal settles when a session whose credentials expire then is replaced. Credentials that expire no later than the last session's cannot be renewed.
func (l *loop) planRenewal(expires time.Time) {
	fresh := expires.After(l.expires)
	l.expires, l.renewAt = expires, time.Time{}
	if expires.IsZero() || !fresh || l.c.set.RenewAt < 0 {
		return
	}
	wall := l.c.creds.Time()
	life := expires.Sub(wall)
	early := float64(l.c.set.Rand()>>11) / (1 << 53) * 0.05 // a fraction of 5 %
	l.renewAt = wall.Add(time.Duration(float64(life) * max(0, l.c.set.RenewAt-early)))
}

// end hangs up and joins the session's goroutine, and puts back what was in flight.
func (l *loop) end() {
	l.hangUp()
	for {
		if e := <-l.events; e.session == nil && !e.subscribed {
			break
		}
	}
	l.settle()
}

// settle cleans up after the session's goroutine has ended.
func (l *loop) settle() {
	l.live = nil
	l.c.box.rewind()
	l.c.in.void()
}

// serve hands messages over until the session ends.
func (l *loop) serve() phase {
	c := l.c
	window := c.set.Window
	if w := l.live.Info().Window; w > 0 {
		window = min(window, w)
	}
	c.box.connect(window)
	c.reconnect.Store(false) // one that came during the attempt has what it wanted
	c.publish(Status{State: Connected, Reason: ConnectionOK, Retry: l.retry})
	ackCheck := time.Time{} // when to look for an overdue answer; zero: nothing is in flight that was not looked at
	for {
		now := time.Now()
		if reason, yes := l.replaceNow(now); yes {
			l.end()
			return l.replace(reason)
		}
		l.passVerdicts()
		parked := true
		if !l.drainBy.IsZero() {
			// Nothing more goes out on this session.
		} else if l.resumeAt.IsZero() {
			switch n := c.box.take(l.batch[:], now, c.creds.Time()); {
			case n < 0:
				l.refused(now)
				continue
			case n > 0:
				l.live.Send(l.batch[:n])
				if t := c.set.Trace; t != nil && t.Sent != nil {
					t.Sent(n)
				}
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
				l.over()
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
		l.arm(now, ackCheck, l.resumeAt, l.drainBy, l.renewal(now), now.Add(clockCheck), l.expire(now))
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
	l.over()
	l.settle()
	return l.lost(ConnectionLost, e.err)
}

// over notes, before the outbox is rewound, what was under way when a session was lost.
func (l *loop) over() {
	l.flaps.end(l.c.box.evidence(), l.stable())
}

// stable reports whether the live session was up long enough for retries to be counted anew after it.
func (l *loop) stable() bool { return time.Since(l.upSince) >= l.c.set.StableTime }

// drainTime is how long a replaced session may take to get the answers to what is in flight, so that nothing is sent twice.
const drainTime = 5 * time.Second

// replaceNow reports whether, and why, the live session is to be replaced at this moment.
func (l *loop) replaceNow(now time.Time) (Reason, bool) {
	if l.c.reconnect.Swap(false) {
		return Planned, true
	}
	if l.clockJumped(now) > 0 {
		return ClockJumped, true
	}
	if l.drainBy.IsZero() {
		if at := l.renewal(now); at.IsZero() || now.Before(at) {
			return 0, false
		}
		l.drainBy = now.Add(drainTime)
	}
	if _, flying := l.c.box.oldestFlight(); flying && now.Before(l.drainBy) {
		return 0, false
	}
	return TokenRenewal, true
}

// renewal returns when the session is to be replaced by the process's clock, zero for never.
func (l *loop) renewal(now time.Time) time.Time {
	if l.renewAt.IsZero() {
		return time.Time{}
	}
	return now.Add(l.renewAt.Sub(l.c.creds.Time()))
}

// passVerdicts hands the handler's verdicts to the session.
func (l *loop) passVerdicts() {
	for {
		ref, outcome, ok := l.c.in.verdict(l.ref)
		if !ok {
			return
		}
		l.ref = ref
		l.live.Do(&transport.Request{Op: transport.OpSettle, Ref: ref, Outcome: outcome})
		if t := l.c.set.Trace; t != nil && t.Settled != nil {
			t.Settled(outcome)
		}
	}
}

// replace goes on to a new connection after a healthy one was hung up.
func (l *loop) replace(reason Reason) phase {
	l.down(nil)
	l.c.publish(Status{State: DisconnectedRetrying, Reason: reason})
	l.c.publish(Status{State: DisconnectedRetrying, Reason: Connecting, Retry: l.retry})
	return connecting
}

// down notes the end of a session: an outage begins, and retries are counted anew if the session was stable.
func (l *loop) down(err error) {
	if t := l.c.set.Trace; t != nil && t.SessionEnd != nil {
		t.SessionEnd(err, time.Since(l.upSince))
	}
	if l.stable() {
		l.retry, l.last, l.renewed = 0, retrypolicy.Decision{}, false
	}
	l.since = time.Now()
	l.upSince = time.Time{}
}

// lost takes the end of a connection or attempt through filter and policy.
func (l *loop) lost(reason Reason, err error) phase {
	c := l.c
	if l.ctx.Err() != nil {
		return ended
	}
	wasUp := !l.upSince.IsZero()
	if wasUp {
		l.down(err)
	}
	now := time.Now()
	failure := transport.Find(err)
	if failure == nil { // a transport that does not translate lost its connection all the same
		failure = &transport.Error{Kind: transport.Network, Scope: transport.Connection, Op: transport.OpRun, Err: err}
	}
	l.askedAbout = nil
	if !errfilter.Retryable(failure) {
		if failure.Kind != transport.Unauthorized || l.renewed || !wasUp && c.creds.Token == nil {
			return l.giveUp(NotRetryable, failure)
		}
		// The token may be the cause: it ran out under a session that was good, or its source gave an old one. The next dial asks for a fresh one, once.
		l.renewed = true
		l.retry++
		l.c.publish(Status{State: DisconnectedRetrying, Reason: reason, Retry: l.retry, Err: failure, Flaps: l.flaps.flaps, Suspect: l.flaps.suspect()})
		return l.again()
	}
	l.retry++
	l.incident = incident{
		attempt: retrypolicy.Attempt{
			Retry: l.retry, Scope: transport.Connection, Kind: failure.Kind, After: failure.RetryAfter,
			Elapsed: now.Sub(l.since), Last: l.last, Rand: c.set.Rand(), Err: failure,
		},
		failure: failure, reason: reason, began: now,
	}
	l.spread = 0
	if most := c.set.ReconnectSpread; most > 0 {
		l.spread = time.Duration(c.set.Rand() % uint64(most))
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
			d.Delay += l.spread
			l.traceDecision(d)
			limit := c.set.OutageLimit
			if !d.Retry || limit > 0 && l.incident.attempt.Elapsed+d.Delay > limit {
				return l.giveUp(RetryExpired, retriesEnded(l.incident.failure))
			}
			l.last = d
			until = l.incident.began.Add(d.Delay)
			c.publish(Status{
				State: DisconnectedRetrying, Reason: l.incident.reason, Retry: l.retry, Delay: d.Delay, Err: l.incident.failure,
				Flaps: l.flaps.flaps, Suspect: l.flaps.suspect(),
			})
		}
		if c.reconnect.Swap(false) || l.clockJumped(now) != 0 || !now.Before(until) {
			return l.again()
		}
		l.arm(now, until, now.Add(clockCheck), l.expire(now))
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

// giveUp makes the client Disconnected, unless TryAgainAfter is set. Enqueued messages stay for the next Open; calls of Send end with the failure.
func (l *loop) giveUp(reason Reason, failure *transport.Error) phase {
	c := l.c
	if c.set.TryAgainAfter > 0 {
		return l.rest(reason, failure)
	}
	c.mu.Lock()
	mine := !l.own.over
	if mine {
		l.own.over = true
		c.publishLocked(Status{State: Disconnected, Reason: reason, Retry: l.retry, Err: failure, Flaps: l.flaps.flaps, Suspect: l.flaps.suspect()})
		c.box.halt(failure)
	}
	c.mu.Unlock()
	return ended
}

// rest waits for TryAgainAfter and begins from scratch.
func (l *loop) rest(reason Reason, failure *transport.Error) phase {
	c := l.c
	c.publish(Status{State: DisconnectedRetrying, Reason: reason, Delay: c.set.TryAgainAfter, Err: failure, Flaps: l.flaps.flaps, Suspect: l.flaps.suspect()})
	until := time.Now().Add(c.set.TryAgainAfter)
	for {
		now := time.Now()
		if c.reconnect.Swap(false) || l.clockJumped(now) != 0 || !now.Before(until) {
			l.retry, l.last, l.renewed, l.since = 0, retrypolicy.Decision{}, false, now
			return l.again()
		}
		l.arm(now, until, now.Add(clockCheck), l.expire(now))
		select {
		case <-l.timer.C:
			l.armed = time.Time{}
		case <-c.wake:
		case <-l.ctx.Done():
			return ended
		}
	}
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
	l.traceDecision(d)
	if !d.Retry {
		l.c.box.fail(l.incident.tag, retriesEnded(l.incident.failure))
		l.resumeAt, l.incident = time.Time{}, incident{}
		return
	}
	l.c.box.decided(l.incident.tag, d)
	l.resumeAt = l.incident.began.Add(d.Delay)
	l.c.publish(Status{State: Connected, Reason: Paused, Retry: l.incident.attempt.Retry, Delay: d.Delay, Err: l.incident.failure})
}

func (l *loop) traceDecision(d retrypolicy.Decision) {
	if t := l.c.set.Trace; t != nil && t.Decision != nil {
		t.Decision(l.incident.attempt, d)
	}
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

// Reply is called once in an attempt at most: the subscription is all that is asked for.
func (s *sink) Reply(id uint32, r transport.Reply) {
	if id == subscribeID {
		s.events <- event{subscribed: true, err: r.Err}
	}
}

func (s *sink) Deliver(d *transport.Delivery) bool { return s.in.deliver(d) }
