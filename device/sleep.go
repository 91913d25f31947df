package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// wakeup says how a wait of the loop was left.
type wakeup uint8

const (
	woken   wakeup = iota // something has changed: look, and go on waiting
	due                   // the wait is over
	closing               // the loop shall end
)

// sleep waits until then, while no session is live. It returns due also when Reconnect is called,
// and when the clock jumps in a way that ends the wait after failure, which is nil before a first
// attempt. It returns woken when passed is closed.
func (l *loop) sleep(until time.Time, failure *transport.Error, passed <-chan struct{}) wakeup {
	now := time.Now()
	if l.c.reconnect.Swap(false) || failure != nil && l.jumpEndsWait(now, failure) || !now.Before(until) {
		return due
	}
	l.arm(now, until, now.Add(clockCheck), l.expire(now))
	select {
	case <-l.c.wake:
	case <-passed:
	case <-l.ctx.Done():
		return closing
	}
	return woken
}

// jumpEndsWait reports whether a jump of the clock ends the wait after failure: the network or the
// token may be good now. A service that asked for a delay still gets it.
func (l *loop) jumpEndsWait(now time.Time, failure *transport.Error) bool {
	return l.clockJumped(now) != 0 && failure.Kind != transport.Throttled && failure.Kind != transport.Quota
}
