package http

import (
	"context"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// errSilent is the reason when checkNetwork ends an exchange early.
var errSilent = fmt.Errorf("no answer, and no new connection to the hub either: %w", context.DeadlineExceeded)

// A watch ends an exchange early when the network is silent. When the answer is late by half of
// Options.silence, a second connection is tried. If that does not come about in the other half, the
// network is silent; otherwise the hub is just slow.
//
// A requester has one watch for all its exchanges. A timer, channel and context per exchange would
// cost nine times as many allocations.
type watch struct {
	s     *session
	timer *time.Timer   // calls checkNetwork; nil before the first exchange
	ended chan struct{} // gets a value when checkNetwork has ended; capacity 1

	// Of the current exchange. Only checkNetwork uses them after the timer has fired.
	ctx    context.Context
	cancel context.CancelFunc
	wait   time.Duration
	silent bool
}

// begin watches the exchange with context ctx, which cancel ends. The caller must call end. extra
// is the extra time of a large request on a slow link.
func (w *watch) begin(ctx context.Context, cancel context.CancelFunc, extra time.Duration) {
	w.ctx, w.cancel, w.wait, w.silent = ctx, cancel, w.s.opt.silence()/2+extra, false
	if w.timer == nil {
		w.ended = make(chan struct{}, 1)
		w.timer = time.AfterFunc(w.wait, w.checkNetwork)
	} else {
		w.timer.Reset(w.wait)
	}
}

// end cancels the context of the exchange and waits for checkNetwork. It reports whether that ended
// the exchange.
func (w *watch) end() (silent bool) {
	w.cancel()
	if !w.timer.Stop() {
		<-w.ended
	}
	return w.silent
}

// checkNetwork tries the second connection. It runs on the timer's goroutine.
func (w *watch) checkNetwork() {
	defer func() { w.ended <- struct{}{} }()
	trial, cancel := context.WithTimeout(w.ctx, min(w.wait, w.s.opt.silence()))
	defer cancel()
	fresh, err := w.s.opt.connect(trial, w.s.cfg.Creds)
	switch {
	case err == nil:
		fresh.Close()
	case w.ctx.Err() == nil && protocol.Error(err).Kind == transport.Timeout:
		w.silent = true
		w.cancel()
	}
}
