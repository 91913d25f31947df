//go:build !tinygo

package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// When the loop's goroutine ends in a callback, the client is Disconnected with an error that names
// it, or begins again after TryAgainAfter.

// crashed is called when the loop's goroutine ends unexpectedly. v is what it panicked
// with, nil for runtime.Goexit. A panic outside of callbacks is the client's own fault, and not
// hidden.
func (l *loop) crashed(v any) {
	if v != nil && l.calling == "" {
		panic(v)
	}
	failure := &transport.Error{
		Kind: transport.Invalid, Scope: transport.Connection, Op: transport.OpRun, Err: &callback.Error{Name: l.calling,
			Panic: v},
	}
	l.calling = ""
	go l.abort(failure)
}

// abort ends the loop, or begins it anew after TryAgainAfter. It asks no policy and calls no
// callback, for one of them has failed just now.
func (l *loop) abort(failure *transport.Error) {
	l.giveBack()
	if l.joining {
		l.hangUp()
		for {
			if e := <-l.events; e.isEnd() {
				break
			}
		}
		l.joining = false
	}
	for len(l.events) > 0 {
		<-l.events
	}
	l.conn = nil
	l.outage, l.pause, l.hold, l.unreported = question{}, pause{}, hold{}, nil
	l.c.outbox.rewind()
	if x := l.c.features(); x != nil {
		for _, one := range x {
			_ = callback.Run("", func() { one.over(l) }) // it may tell a policy
		}
		l.calling = ""
	}

	if l.ctx.Err() == nil && l.c.set.TryAgainAfter > 0 {
		if l.restPlainly(failure) {
			go l.run(connecting)
			return
		}
	} else if l.ctx.Err() == nil {
		l.disconnect(NotRetryable, failure)
	}
	l.finish()
}

// restPlainly is rest without callbacks. It reports whether to begin again.
func (l *loop) restPlainly(failure *transport.Error) bool {
	l.publishOutage(NotRetryable, l.c.set.TryAgainAfter, failure)
	over := newAlarm(l.c.set.TryAgainAfter)
	defer over.stop()
	for !l.c.reconnect.Swap(false) {
		select {
		case <-l.c.wake:
			continue
		case <-l.ctx.Done():
			return false
		case <-over.rang:
		}
		break
	}
	l.retry, l.last, l.renewed, l.since = 0, retrypolicy.Decision{}, false, time.Now()
	l.again()
	return true
}
