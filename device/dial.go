package device

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
)

// connect makes one attempt.
func (l *loop) connect() phase {
	c := l.c
	if p, ok := l.admitted(); !ok {
		return p
	}
	if !l.queueToDial() {
		l.tried(errClosed, time.Now())
		return ended
	}
	ctx, end := l.ctx.within()
	l.hangUp = end
	c.reconnect.Store(false)
	c.progress.Store(false)
	began := time.Now()
	l.clockJumped(began)
	l.clock.settle(l.wall(), began) // what happened before this attempt does not concern its session
	deadline := began.Add(c.set.DialTimeout)
	l.joining, l.placed = true, false // it gives the place back
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
			case e.session != nil:
				l.live = e.session
				want, _ := l.wants()
				if want == 0 {
					return l.connected(began)
				}
				l.subscribe(want)
			case e.subscribed && e.err == nil:
				l.granted, l.asked = l.asked, 0
				return l.connected(began)
			case e.subscribed:
				l.end()
				return l.lost(AttemptFailed, ofConnection(e.err))
			default:
				l.joining = false
				l.hangUp()
				l.settle()
				return l.lost(AttemptFailed, e.err)
			}
		case <-c.wake:
			if c.progress.Swap(false) {
				deadline = time.Now().Add(c.set.DialTimeout)
			}
		case <-l.ctx.Done():
			l.end()
			l.tried(errClosed, time.Now())
			return ended
		}
	}
}

// queueToDial waits for a place of the shared limiter, which the session's goroutine gives back. It
// returns false when the loop shall end.
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
			l.placed = true
			at = limiter.turn(time.Now())
		case <-l.c.wake:
		case <-l.ctx.Done():
			l.giveBack()
			return false
		}
	}
}

// giveBack gives the place of the shared limiter back, if the loop holds one.
func (l *loop) giveBack() {
	if l.placed {
		l.placed = false
		<-l.c.set.Dials.places
	}
}

// session is the goroutine of one attempt: it dials, serves and reports. end joins it. With
// freshStacks it serves in a goroutine of its own.
func (l *loop) session(ctx context.Context) {
	c := l.c
	err, handedOn, placed := errNoReturn, false, c.set.Dials != nil
	defer func() {
		v := recover()
		if placed {
			<-c.set.Dials.places
		}
		if !handedOn {
			l.reportEnd(err, v)
		}
	}()
	s, err2 := c.transport.Dial(ctx, &transport.Config{Creds: c.lent, Window: c.set.Window, Queue: c.set.Inbox,
		Sink: &c.sink, Progress: c.progressed})
	if placed {
		placed = false
		<-c.set.Dials.places
	}
	if err2 != nil {
		err = err2
		return
	}
	l.events <- event{session: s}
	if freshStacks {
		handedOn = true
		go l.serveSession(ctx, s)
		return
	}
	err = s.Run(ctx)
}

func (l *loop) serveSession(ctx context.Context, s transport.Session) {
	err := errNoReturn
	defer func() { l.reportEnd(err, recover()) }()
	err = s.Run(ctx)
}

// reportEnd tells the loop the end of a session or attempt, also when a callback in it panicked
// with v or ended the goroutine.
func (l *loop) reportEnd(err error, v any) {
	if v != nil {
		err = &callback.Error{Name: sessionCallback, Panic: v}
	}
	l.events <- event{err: err}
}

const sessionCallback = "of the transport or the credentials"

var errNoReturn error = &callback.Error{Name: sessionCallback}

// connected notes that a session is up.
func (l *loop) connected(began time.Time) phase {
	info := l.live.Info()
	l.upSince = time.Now()
	l.damage = errfilter.Damage{}
	l.flaps.begin(l.evidence())
	l.drainBy, l.renewBy = time.Time{}, time.Time{}
	l.planRenewal(info.Expires)
	if t := l.c.set.Trace; t != nil && t.Connected != nil {
		l.calling = "Trace.Connected"
		t.Connected(info, l.upSince.Sub(began))
		l.calling = ""
	}
	return connected
}
