package http

import (
	"context"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// errSilent is the reason when an exchange ends early because the network is silent.
var errSilent = fmt.Errorf("no answer, and no new connection to the hub either: %w", context.DeadlineExceeded)

// answerTime is the most that the bytes of an answer add to the time limit of its request. The
// largest cloud-to-device message, of 64 KB, comes in that time at 110 bytes a second. A peer that
// sends a byte now and then does not hold the exchange for longer.
const answerTime = 10 * time.Minute

// A watch ends an exchange that is late. The bytes of an answer are progress: each of them begins
// the times below anew.
//
// When the answer is late by half of Options.silence, a second connection is tried, once in an
// exchange. If that does not come about in the other half, the network is silent; otherwise the hub
// is just slow, and has the whole time limit.
//
// A requester has one watch for all its exchanges. A timer, channel and context per exchange would
// cost nine times as many allocations.
type watch struct {
	s     *session
	timer *time.Timer   // calls run; nil before the first exchange
	ended chan struct{} // gets a value when run has ended; capacity 1

	// Of the current exchange. Only run uses them after the timer has fired.
	ctx         context.Context
	cancel      context.CancelFunc
	conn        *hubhttp.Conn
	sent        time.Time
	wait, limit time.Duration
	late        error // why run ended the exchange
}

// begin watches the exchange over conn with context ctx, which cancel ends. The caller must call
// end. limit is the time limit. extra is the part of it that a large request has on a slow link.
func (w *watch) begin(ctx context.Context, cancel context.CancelFunc, conn *hubhttp.Conn, limit, extra time.Duration) {
	w.ctx, w.cancel, w.conn, w.sent, w.late = ctx, cancel, conn, time.Now(), nil
	w.wait, w.limit = min(w.s.opt.silence()/2+extra, limit), limit
	if w.timer == nil {
		w.ended = make(chan struct{}, 1)
		w.timer = time.AfterFunc(w.wait, w.run)
	} else {
		w.timer.Reset(w.wait)
	}
}

// end cancels the context of the exchange and waits for run. It returns the reason if that ended
// the exchange.
func (w *watch) end() error {
	w.cancel()
	if !w.timer.Stop() {
		<-w.ended
	}
	w.conn = nil // it may be closed before the next exchange
	return w.late
}

// run tries the second connection, and enforces the time limit. It runs on the timer's goroutine.
func (w *watch) run() {
	defer func() { w.ended <- struct{}{} }()
	switch {
	case !w.silentFor(w.wait): // it ended
	case w.limit > w.wait && w.checkNetwork():
		w.late = errSilent
	case w.silentFor(w.limit):
		w.late = context.DeadlineExceeded
	}
	w.cancel()
}

// silentFor waits until no byte has come for this time. It returns false if the exchange ended.
func (w *watch) silentFor(d time.Duration) bool {
	for w.ctx.Err() == nil {
		left := d - w.sinceByte()
		if left <= 0 {
			return true
		}
		select {
		case <-w.ctx.Done():
		case <-time.After(left):
		}
	}
	return false
}

// sinceByte returns the time since the latest byte came, or the request was sent.
func (w *watch) sinceByte() time.Duration { return time.Since(times.Later(w.sent, w.conn.Heard())) }

// checkNetwork tries the second connection. It reports whether the network is silent.
func (w *watch) checkNetwork() bool {
	trial, cancel := context.WithTimeout(w.ctx, min(w.wait, w.s.opt.silence(), w.limit-w.wait))
	defer cancel()
	fresh, err := w.s.opt.connect(trial, w.s.cfg.Creds)
	if err == nil {
		fresh.Close()
		return false
	}
	return w.ctx.Err() == nil && protocol.Error(err).Kind == transport.Timeout && w.sinceByte() >= w.wait
}
