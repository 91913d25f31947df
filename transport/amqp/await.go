package amqp

import (
	"context"
	"time"
)

// awaited is the wait for the hub's answer to a request: a token, a session, a link or a
// subscription to desired properties. It ends Options.OperationTimeout after the connection last
// made progress towards the answer.
type awaited struct {
	exchange
	c        *connection
	ctx      context.Context
	cancel   context.CancelCauseFunc
	progress func()    // reports progress to a dial; nil if there is none
	reported time.Time // the progress that was reported
	timer    *time.Timer
}

// progressInterval is how often a dial learns that it makes progress.
const progressInterval = time.Second

// await returns a context that bounds the wait for an answer, and ends with the cause errNoAnswer.
// done must be called. progress is called while the connection makes progress; it may be nil.
func (c *connection) await(ctx context.Context, progress func()) (bounded context.Context, done func()) {
	r := &awaited{c: c, progress: progress}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	c.window.ask(&r.exchange)
	r.reported = r.since
	r.timer = time.AfterFunc(time.Hour, r.check)
	r.timer.Reset(min(progressInterval, c.opt.OperationTimeout)) // it does not fire before the field is set
	return r.ctx, r.done
}

// check is called by the timer.
func (r *awaited) check() {
	if r.ctx.Err() != nil {
		return
	}
	at := r.c.window.progress(&r.exchange)
	since := time.Since(at)
	if r.progress != nil && (since < 0 || at.After(r.reported)) {
		r.reported = at
		r.progress()
	}
	left := r.c.opt.OperationTimeout - since
	if left <= 0 {
		r.cancel(errNoAnswer)
		return
	}
	r.timer.Reset(min(progressInterval, left))
}

// done ends the wait. If the context has not ended, the answer has arrived.
func (r *awaited) done() {
	r.timer.Stop()
	if r.ctx.Err() == nil {
		r.c.window.answered(&r.exchange)
	} else {
		r.c.window.drop(&r.exchange)
	}
	r.cancel(nil)
}
