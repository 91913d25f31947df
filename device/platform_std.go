//go:build !tinygo

package device

import (
	"context"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// This file and platform_tinygo.go hold what differs between standard Go and boards.

// quoted returns a name that a peer chose as an error may show it.
func quoted(name string) string { return scrub.Peer(texts.Quote(name)) }

// Waiting continues on a new goroutine after each dial: dialing grows the stack of its goroutine,
// and a client spends its life waiting. Each goroutine also detects a callback that panics or ends
// it.

// run is the goroutine of one phase of the loop.
func (l *loop) run(p phase) {
	returned := false
	defer func() {
		if !returned {
			l.crashed(recover())
		}
	}()
	next := l.pass(p)
	if next == ended {
		l.endAll()
	}
	returned = true
	if next == ended {
		l.finish()
		return
	}
	go l.run(next)
}

// attempts has nothing here: each attempt to connect has a goroutine of its own.
type attempts struct{}

func (attempts) begin(l *loop, ctx context.Context) { go l.session(ctx) }

// session is the goroutine of one attempt. It dials and starts another goroutine that serves; the
// last one reports the end. end joins them.
func (l *loop) session(ctx context.Context) {
	c := l.c
	err, sessionPassedOn, slot := errNoReturn, false, &l.worker.slot
	defer func() {
		v := recover()
		if !sessionPassedOn { // else the loop may have the slot again
			slot.release()
			l.reportEnd(err, v)
		}
	}()
	want, _ := c.features().wants()
	cfg := &transport.Config{Creds: c.lent, Window: c.set.Window, Queue: c.set.Inbox, Sink: &c.sink,
		DialTimeout: c.set.DialTimeout, Refused: c.queue.anyRefused, Progress: c.progressed,
		Want: want, DesiredVersion: c.features().held()}
	if slot.of != nil {
		cfg.Wait = slot.wait
	}
	s, err2 := c.transport.Dial(ctx, cfg)
	slot.release()
	if err2 != nil {
		err = err2
		return
	}
	c.events <- event{session: s}
	sessionPassedOn = true
	go l.serveSession(ctx, s)
}

func (l *loop) serveSession(ctx context.Context, s transport.Session) {
	err := errNoReturn
	defer func() { l.reportEnd(err, recover()) }()
	err = s.Run(ctx)
}

// reportEnd reports the end of a session or attempt to the loop. v is the panic value of a
// callback, nil if none panicked; err is errNoReturn if a callback ended the goroutine.
func (l *loop) reportEnd(err error, v any) {
	if v != nil {
		err = &callback.Error{Name: sessionCallback, Panic: v}
	}
	err = callback.Call(sessionCallback, func() error { return err })
	l.c.events <- event{err: err}
}

const sessionCallback = "of the transport or the credentials"

var errNoReturn error = &callback.Error{Name: sessionCallback}

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
	l.worker.join()
	l.worker.slot.release()
	l.worker.discard()
	l.conn = nil
	l.c.queue.rewind()
	l.abortAll()

	if l.ctx.Err() == nil && l.c.set.TryAgainAfter > 0 {
		if l.tryAgainLaterPlainly(failure) {
			go l.run(connecting)
			return
		}
	} else if l.ctx.Err() == nil {
		l.disconnect(ReasonNotRetryable, failure)
	}
	l.abortAll()
	l.finish()
}

// abortAll is endAll with policies that may panic, once for each series. No callback is called
// again about the same, so that each run gets further; the bound is for a panic of our own.
func (l *loop) abortAll() {
	for range 1 << 16 {
		if callback.Run("", l.endAll) == nil {
			break
		}
	}
	l.calling = ""
}

// tryAgainLaterPlainly is tryAgainLater without callbacks. It reports whether to start over.
func (l *loop) tryAgainLaterPlainly(failure *transport.Error) bool {
	l.publishOutage(ReasonNotRetryable, l.c.set.TryAgainAfter, failure)
	over := newAlarm(l.c.set.TryAgainAfter)
	defer over.stop()
	for now := time.Now(); !l.hurries(now); now = time.Now() {
		l.timer.arm(now, l.hurryAt())
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

// reuseDeliveries is whether a message gets the memory of an earlier one. Here each has its own, so
// a handler that sends Message.Body on without a copy does not change a message in the queue.
const reuseDeliveries = false
