package amqp

import (
	"context"
	"time"
)

// awaited is the wait for the hub's answer to something that opens or settles: a token, a session,
// a link. It ends Options.OperationTimeout after the connection last made progress towards the
// answer.
type awaited struct {
	exchange
	c      *connection
	ctx    context.Context
	cancel context.CancelCauseFunc
	told   func()    // tells a dial of progress; nil if there is none
	until  time.Time // up to when it was told
	timer  *time.Timer
}

// tellEvery is how often a dial is told that it makes progress.
const tellEvery = time.Second

// await returns a context that bounds the wait for an answer, and ends with errNoAnswer as its
// cause. done must be called. told is called while the connection makes progress; it may be nil.
func (c *connection) await(ctx context.Context, told func()) (bounded context.Context, done func()) {
	r := &awaited{c: c, told: told}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	c.window.ask(&r.exchange)
	r.until = r.since
	r.timer = time.AfterFunc(time.Hour, r.look)
	r.timer.Reset(min(tellEvery, c.opt.OperationTimeout)) // it does not fire before the field is set
	return r.ctx, r.done
}

// look is the timer's.
func (r *awaited) look() {
	if r.ctx.Err() != nil {
		return
	}
	at := r.c.window.progress(&r.exchange)
	since := time.Since(at)
	if r.told != nil && (since < 0 || at.After(r.until)) {
		r.until = at
		r.told()
	}
	left := r.c.opt.OperationTimeout - since
	if left <= 0 {
		r.cancel(errNoAnswer)
		return
	}
	r.timer.Reset(min(tellEvery, left))
}

// done ends the wait. One that its context did not end was answered.
func (r *awaited) done() {
	r.timer.Stop()
	if r.ctx.Err() == nil {
		r.c.window.answered(&r.exchange)
	} else {
		r.c.window.drop(&r.exchange)
	}
	r.cancel(nil)
}
