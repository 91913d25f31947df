package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
)

func (l *loop) publishOutage(reason Reason, delay time.Duration, failure *transport.Error) {
	l.publish(Status{State: StateDisconnectedRetrying, Reason: reason, Retry: l.outage.retry, Delay: delay, Err: failure})
}

// publish publishes a status of the loop, unless its run has ended.
func (l *loop) publish(s Status) {
	s.Flaps, s.Suspect = l.flaps.flaps, l.flaps.suspect()
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	if !l.own.over {
		switch {
		case s.Reason == ReasonConnectionOK: // Err is about a feature that nothing waits for
			l.own.last = nil
		case s.Err != nil || s.State == StateConnected:
			l.own.last = s.Err
		}
		l.c.publishLocked(s)
	}
}

// publishUp publishes the status of a connection that is up: messages flow, or pause.
func (l *loop) publishUp(now time.Time) {
	if l.pause.running() {
		l.publishPause(now)
	} else {
		l.publishConnected()
	}
}

func (l *loop) publishConnected() {
	s := Status{State: StateConnected, Reason: ReasonConnectionOK, Retry: l.outage.retry}
	if l.conn.subs.lacking != nil {
		s.Err = l.conn.subs.lacking
	}
	l.publish(s)
}

func (l *loop) publishPause(now time.Time) {
	l.publish(Status{State: StateConnected, Reason: ReasonPaused, Retry: l.pause.attempt.Retry,
		Delay: max(0, l.pause.until.Sub(now)),
		Err:   l.pause.failure})
}

// publishLocked is the only function that changes the status. c.mu must be held.
func (c *Client) publishLocked(s Status) {
	if c.status.Reason == ReasonClientClosed {
		return
	}
	s.Since = time.Now()
	c.counters.observe(c.status, s)
	s.first = c.counters.connections == 0
	c.status = s
	if c.changed != nil {
		close(c.changed)
		c.changed = nil
	}
	if c.set.OnStatus == nil {
		return
	}
	c.notices.push(s)
	if !c.notices.running {
		c.notices.running = true
		c.notices.ended = make(chan struct{})
		go c.dispatch(c.notices.ended)
	}
}

// dispatch calls OnStatus until the queue is empty, and ends. One runs at a time; publishLocked
// starts it, Close joins it.
func (c *Client) dispatch(ended chan struct{}) {
	callback.Watch(c.callOnStatus, func(returned bool) {
		if returned {
			close(ended)
		} else { // OnStatus ended this goroutine
			go c.dispatch(ended)
		}
	})
}

// callOnStatus calls OnStatus until the queue is empty.
func (c *Client) callOnStatus() {
	for {
		c.mu.Lock()
		s, ok := c.notices.pop()
		if !ok {
			c.notices.running = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		c.tell(s)
	}
}

// tell calls OnStatus.
func (c *Client) tell(s Status) {
	panicked := true // also if OnStatus ends the goroutine
	call := func() { panicked = callback.Protect(func() { c.set.OnStatus(s) }, c.set.Trace.handlerPanic) }
	callback.Watch(call, func(bool) {
		if panicked {
			c.mu.Lock()
			c.counters.panics++
			c.mu.Unlock()
		}
	})
}
