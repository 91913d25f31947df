//go:build !tinygo

package device

import (
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
)

// When a callback ends the loop's goroutine, the client becomes Disconnected with an error that
// names the callback, or starts over after TryAgainAfter.

// crashed handles an unexpected end of the loop's goroutine. v is the panic value, nil for
// runtime.Goexit. A panic outside of callbacks is a bug of the client and is passed on.
func (l *loop) crashed(v any) {
	if v != nil && l.calling == "" {
		panic(v)
	}
	failure := &transport.Error{
		Kind: transport.Invalid, Scope: transport.ScopeConnection, Op: transport.OpRun, Err: &callback.Error{Name: l.calling,
			Panic: v},
	}
	l.calling = ""
	go l.abort(failure)
}

// abort ends the loop, or restarts it after TryAgainAfter. It asks no policy and calls no callback
// directly, because one of them has just failed.
func (l *loop) abort(failure *transport.Error) {
	l.releaseDialSlot()
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
	l.outage.question, l.pause, l.hold = nil, pause{}, hold{}
	l.c.outbox.rewind()
	_ = callback.Run("", func() { l.endSeries(&l.outage.series) })
	_ = callback.Run("", func() { l.reportOutcomes(time.Now()) })
	if x := l.c.features(); x != nil {
		for _, one := range x {
			_ = callback.Run("", func() { one.over(l) }) // over may call a policy
		}
		l.calling = ""
	}

	if l.ctx.Err() == nil && l.c.set.TryAgainAfter > 0 {
		if l.tryAgainLaterPlainly(failure) {
			go l.run(connecting)
			return
		}
	} else if l.ctx.Err() == nil {
		l.disconnect(ReasonNotRetryable, failure)
	}
	l.finish()
}

// tryAgainLaterPlainly is tryAgainLater without callbacks. It reports whether to start over.
func (l *loop) tryAgainLaterPlainly(failure *transport.Error) bool {
	l.publishOutage(ReasonNotRetryable, l.c.set.TryAgainAfter, failure)
	over := newAlarm(l.c.set.TryAgainAfter)
	defer over.stop()
	for !l.c.reconnect.Swap(false) {
		select {
		case <-l.c.wake:
			continue
		case <-l.ctx.Done():
			return false
		case <-over.fired:
		}
		break
	}
	l.outage.startOver(time.Now())
	l.again()
	return true
}
