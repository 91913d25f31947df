package outbox

import (
	"context"
	"errors"
	"sync"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/transport"
)

// Client is what Run needs of a *device.Client. device.Options.Overflow must be Block, the default.
// With another Overflow the client may drop a message, and Run then fails with Invalid; the message
// stays in the files.
type Client interface {
	Enqueue(ctx context.Context, m *transport.Message, r *device.Receipt) error
}

// slot is a message that was handed to the client, or is free.
type slot struct {
	message transport.Message
	receipt device.Receipt
	number  uint64 // of its record
	from    uint64 // records from this one to number were not found
	err     error  // the client did not take it, or it was never handed over
}

// Run hands waiting and new messages to the client, in order. It returns when the client or the
// queue is closed (Closed), ctx ends (Cancelled), OnFailed panics or ends its goroutine, or the
// files cannot be read; damaged records and unreadable sectors are counted and skipped. A program
// must check the error: messages wait for the next Run.
//
// One Run runs at a time; another one waits for its end. Messages that the client still had when
// Run ended count as not sent: a later Run, with another client, begins with them.
func (q *Queue) Run(ctx context.Context, to Client) error {
	select {
	case q.running <- struct{}{}:
	case <-ctx.Done():
		return gaveUp(ctx, nil)
	case <-q.life.Done():
		return errClosed
	}
	defer func() { <-q.running }()
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(q.life, func() { cancel(errClosed) })()

	sent := make(chan *slot, q.opt.Window)
	free := make(chan *slot, q.opt.Window)
	for range q.opt.Window {
		free <- nil // the slot is allocated when needed
	}
	var wait sync.WaitGroup
	var settleErr error
	wait.Go(func() {
		if settleErr = q.settle(ctx, sent, free); settleErr != nil {
			cancel(settleErr)
		}
	})
	err := func() error {
		defer close(sent) // also when the client panics, or settle would not end
		return q.feed(ctx, to, sent, free)
	}()
	if transport.KindOf(err) != transport.Closed {
		cancel(err) // a closed client has all results
	}
	wait.Wait()
	switch {
	case settleErr != nil && transport.KindOf(settleErr) != transport.Cancelled:
		return settleErr
	case caller.Err() != nil && errors.Is(err, context.Cause(caller)):
		return gaveUp(caller, nil)
	}
	return err
}

// feed reads records and hands the messages to the client.
func (q *Queue) feed(ctx context.Context, to Client, sent chan<- *slot, free <-chan *slot) error {
	c := cursor{queue: q, ctx: ctx}
	defer c.close()
	for {
		var s *slot
		select {
		case s = <-free:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if s == nil {
			s = new(slot)
		}
		if err := c.next(s); err != nil {
			return err
		}
		if s.err == nil {
			s.err = to.Enqueue(ctx, &s.message, &s.receipt)
		}
		switch kind := transport.KindOf(s.err); {
		case s.err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case s.err != nil && kind == transport.Closed:
			return s.err
		}
		sent <- s // there is room for all slots
	}
}

// settle waits for the results, in order.
func (q *Queue) settle(ctx context.Context, sent <-chan *slot, free chan<- *slot) error {
	for s := range sent {
		err := s.err
		if err == nil {
			err = s.receipt.Wait(ctx)
		}
		if transport.KindOf(err) == transport.Cancelled {
			return err
		}
		var failed error
		switch kind := transport.KindOf(err); {
		case err == nil || err == errDamaged:
		case kind == transport.Closed:
			return err
		case kind == transport.Dropped:
			return invalid("the client dropped a message; set its Overflow to Block")
		case q.opt.OnFailed != nil:
			failed = callback.Run("outbox.Options.OnFailed", func() { q.opt.OnFailed(&s.message, err) })
		}
		q.finish(s.from, s.number, err, len(sent) == 0)
		if failed != nil { // the message counts as reported, so the next Run starts behind it
			return failed
		}
		s.message.Body = nil // frees the body's memory before the slot is reused
		free <- s
	}
	return nil
}
