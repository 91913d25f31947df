//go:build tinygo

package device

import (
	"context"

	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// quoted returns the beginning of a name that a peer chose: a board's program does not link package
// scrub.
func quoted(name string) string { return texts.Quote(name[:min(len(name), 64)]) }

// Here waiting does not get a new goroutine. All stacks of a board have one size, and an ended
// goroutine's stack stays until the collector runs, or longer if some word looks like its address.
// A callback must return: recover does not catch most panics on boards, and none in a program built
// with -panic=trap, and its code is 5 KB.

// run is the goroutine of the loop.
func (l *loop) run(p phase) {
	for p != ended {
		p = l.pass(p)
	}
	l.endAll()
	l.finish()
	if l.worker.attempts != nil {
		close(l.worker.attempts)
	}
}

// attempts hands each attempt to connect to one goroutine: the stacks of ended ones would wait for
// the collector. Nil before the first.
type attempts chan context.Context

func (a *attempts) begin(l *loop, ctx context.Context) {
	if *a == nil {
		*a = make(attempts, 1)
		go a.run(l) // ends with the loop
	}
	*a <- ctx
}

func (a attempts) run(l *loop) {
	for ctx := range a {
		l.session(ctx)
	}
}

// session is one attempt: it dials, serves and reports. end waits for it.
func (l *loop) session(ctx context.Context) {
	c := l.c
	want, _ := c.features().wants()
	s, err := c.transport.Dial(ctx, &transport.Config{Creds: c.lent, Window: c.set.Window, Queue: c.set.Inbox,
		Sink: &c.sink, DialTimeout: c.set.DialTimeout, Progress: c.progressed, // Wait is for many clients in a process
		Want: want, DesiredVersion: c.features().held()})
	l.worker.slot.release()
	if err == nil {
		c.events <- event{session: s}
		err = s.Run(ctx)
	}
	c.events <- event{err: err}
}

// reuseDeliveries is whether a message gets the memory of an earlier one: garbage of messages would
// fragment the small heap of a board.
const reuseDeliveries = true
