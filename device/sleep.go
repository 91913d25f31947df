package device

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// wakeup is the reason why sleep returned.
type wakeup uint8

const (
	woken   wakeup = iota // something has changed: check, and continue to wait
	due                   // the wait is over
	closing               // the loop must end
)

// sleep waits until the given time, while no session is live. It also returns due when Reconnect is
// called, or when the clock jumps in a way that ends the wait after failure. failure is nil before
// a first attempt. sleep returns woken when passed is closed.
func (l *loop) sleep(until time.Time, failure *transport.Error, passed <-chan struct{}) wakeup {
	now := time.Now()
	if l.c.reconnect.Swap(false) || failure != nil && l.jumpEndsWait(now, failure) || !now.Before(until) {
		return due
	}
	l.timer.arm(now, until, now.Add(clockCheck), l.expire(now))
	select {
	case <-l.c.wake:
	case <-passed:
	case <-l.ctx.Done():
		return closing
	}
	return woken
}

// jumpEndsWait reports whether a jump of the clock ends the wait after failure, because the network
// or the token may have become good. A delay that the service asked for stays.
func (l *loop) jumpEndsWait(now time.Time, failure *transport.Error) bool {
	return l.clockJumped(now) != 0 && failure.Kind != transport.Throttled && failure.Kind != transport.Quota
}
