package http

import (
	"context"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// errDead is why an exchange is given up before its time is over.
var errDead = fmt.Errorf("no answer, and no new connection to the hub comes about: %w", context.DeadlineExceeded)

// watch returns a context for an exchange and what ends the watch, which must be called. When the
// answer is late by half of Options.silence, a second connection is tried. If that does not come
// about in the other half, it is the network that is silent, and not a hub that answers late, so
// the context ends. more is added for a large request on a slow link.
func (s *session) watch(ctx context.Context, more time.Duration) (_ context.Context, stop func()) {
	ctx, giveUp := context.WithCancelCause(ctx)
	wait := s.opt.silence()/2 + more
	ended := make(chan struct{})
	timer := time.AfterFunc(wait, func() {
		defer close(ended)
		trial, cancel := context.WithTimeout(ctx, min(wait, s.opt.silence()))
		defer cancel()
		fresh, err := s.opt.connect(trial, s.cfg.Creds)
		switch {
		case err == nil:
			fresh.close()
		case ctx.Err() == nil && protocol.Error(err).Kind == transport.Timeout:
			giveUp(errDead)
		}
	})
	return ctx, func() {
		giveUp(nil)
		if !timer.Stop() {
			<-ended
		}
	}
}
