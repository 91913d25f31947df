package outbox

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// Client is what Run needs of a *device.Client. device.Options.Overflow must be Block, the default.
// With another Overflow the client may drop a message, and Run then fails with Invalid; the message
// stays in the files.
type Client interface {
	Enqueue(ctx context.Context, m *transport.Message, r *device.Receipt) error
	// Flush returns why the client does not send what it has, as soon as it stops.
	Flush(ctx context.Context) error
}

// slot is a message that was handed to the client, or is free.
type slot struct {
	message transport.Message
	receipt device.Receipt
	number  uint64 // of its record
	from    uint64 // records from this one to number were not found
	err     error  // the client did not take it, or it was never handed over
}

// Run hands waiting and new messages to the client, in order. It returns an error when
//
//   - the client has stopped sending, with its reason: the retry policy ended the retries
//     (RetryExpired) of the connection or of a message, or the hub refused the device;
//   - the client or the queue is closed (Closed), or ctx ends (Cancelled);
//   - the client cannot take a message because of its options (TooLarge, Invalid);
//   - OnFailed or the client's Flush panics or ends its goroutine; Enqueue's panic passes through;
//   - the files cannot be read; damaged records and unreadable sectors are counted and skipped.
//
// In each case the messages wait for the next Run, so a program must check the error. Flush returns
// it, too. A client that gave up must be opened before the next Run. A client that was never opened
// is waited for.
//
// One Run runs at a time; another one waits for its end. Messages that the client still had when
// Run ended count as not sent: the next Run begins with them, so with the same client the hub may
// get them twice.
func (q *Queue) Run(ctx context.Context, to Client) (err error) {
	select {
	case q.running <- struct{}{}:
	case <-ctx.Done():
		return gaveUp(ctx, nil)
	case <-q.life.Done():
		return errClosed
	}
	q.stopped(nil)
	err = errNoReturn
	defer func() {
		q.stopped(err)
		<-q.running
	}()
	if err := whyIdle(to); err != nil {
		return err // handing over more would only double what the client has
	}
	return q.run(ctx, to)
}

// stopped records why Run has ended, for Flush; nil means that it runs.
func (q *Queue) stopped(why error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stop = why
	if why != nil {
		wake(&q.ended)
	}
}

func (q *Queue) run(ctx context.Context, to Client) error {
	caller := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(q.life, func() { cancel(errClosed) })()

	sent := make(chan *slot, q.opt.Window)
	free := make(chan *slot, q.opt.Window)
	for range q.opt.Window {
		free <- nil // the slot is allocated when needed
	}
	handing := make(chan struct{}, 1)
	var wait sync.WaitGroup
	var settleErr error
	wait.Go(func() {
		settleErr = q.settle(ctx, sent, free)
		cancel(settleErr)
	})
	wait.Go(func() { watch(ctx, to, handing, cancel) })
	err := func() error {
		defer close(sent) // also when the client panics, or settle would not end
		return q.feed(ctx, to, handing, sent, free)
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

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// whyIdle returns why the client has stopped sending, if it has messages; nil if it sends, or was
// not opened or is closed.
func whyIdle(to Client) error { return idleReason(flush(ended, to)) }

// flush calls the client's Flush, which may panic or end its goroutine: then it returns Invalid.
func flush(ctx context.Context, to Client) (err error) {
	if failed := callback.Run("outbox.Client.Flush", func() { err = scrub.Cause(to.Flush(ctx)) }); failed != nil {
		return &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Err: failed}
	}
	return err
}

// idleReason is whyIdle for a result of the client's Flush. Closed also stands for a client that
// was not opened yet.
func idleReason(err error) error {
	if kind := transport.KindOf(err); kind == transport.Closed || kind == transport.Cancelled {
		return nil
	}
	return err
}

// watchEvery is the time between two looks at a client that was not opened yet.
const watchEvery = time.Second

// watch calls stop with the client's reason when the client stops sending. handing has a value
// when messages were, or are being, handed over.
func watch(ctx context.Context, to Client, handing <-chan struct{}, stop context.CancelCauseFunc) {
	for {
		select {
		case <-handing:
		case <-ctx.Done():
			return
		}
		for {
			err := flush(ctx, to)
			if err == nil {
				break
			}
			if why := idleReason(err); why != nil {
				stop(why)
				return
			}
			select { // a closed client gives each message a result, which ends Run
			case <-time.After(watchEvery):
			case <-ctx.Done():
				return
			}
		}
	}
}

// feed reads records and hands the messages to the client. It tells handing before and after.
func (q *Queue) feed(ctx context.Context, to Client, handing chan<- struct{}, sent chan<- *slot,
	free <-chan *slot) error {
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
			ring(handing) // Enqueue may wait for room
			s.err = to.Enqueue(ctx, &s.message, &s.receipt)
			ring(handing)
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

func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// settle waits for the results, in order. A result that is not about the message itself ends it,
// and the message stays.
func (q *Queue) settle(ctx context.Context, sent <-chan *slot, free chan<- *slot) error {
	for s := range sent {
		err := s.err
		if err == nil {
			err = s.receipt.Wait(ctx)
		}
		var failed error
		switch {
		case err == nil || errors.Is(err, errDamaged):
		case transport.KindOf(err) == transport.Dropped:
			return invalid("the client dropped a message; set its Overflow to Block")
		case !final(err) || s.err != nil && transport.KindOf(err) == transport.TooLarge: // for the client's MaxBytes
			return err
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

// final reports whether err, the result of a message, is about the message itself: it has expired,
// or it was refused for good. Everything else is about the client, its policies, the device or the
// hub, and may pass.
func final(err error) bool {
	e := transport.Find(err)
	if e == nil || e.Scope != transport.ScopeOperation {
		return false
	}
	switch e.Kind {
	case transport.Expired, transport.TooLarge, transport.Invalid, transport.Unsupported, transport.Forbidden,
		transport.Conflict, transport.Protocol, transport.Unknown, transport.Poison:
		return true
	default:
		return false
	}
}
