package main

import (
	"context"
	"net"
	"net/http/httptrace"
	"time"

	"github.com/hubline-iot/hubline/transport/netopt"
)

// answer waits for the first answer of a service over HTTPS. Without one in time it ends what was
// begun: an upload that has only its context ended would go on to wait for the hub's answer.
type answer struct {
	limit  context.Context // ends when the time is over
	cancel context.CancelFunc
	timer  *time.Timer // nil: no limit
}

func newAnswer(d time.Duration) *answer {
	a := new(answer)
	a.limit, a.cancel = context.WithCancel(context.Background())
	if d > 0 {
		a.timer = time.AfterFunc(d, a.cancel)
	}
	return a
}

// stop ends the wait; the limit holds no more.
func (a *answer) stop() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

// late reports whether there was no answer in time.
func (a *answer) late() bool { return a.limit.Err() != nil }

// within returns a context for the requests. It ends with the limit.
func (a *answer) within(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(a.limit, cancel)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: a.stop})
}

// dialer returns a dialer whose connections end with the limit. A nil dial is netopt.Direct.
func (a *answer) dialer(dial netopt.DialFunc) netopt.DialFunc {
	if dial == nil {
		dial = netopt.Direct
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(a.limit, cancel)()
		conn, err := dial(ctx, network, address)
		if err == nil {
			context.AfterFunc(a.limit, func() { _ = conn.Close() })
		}
		return conn, err
	}
}
