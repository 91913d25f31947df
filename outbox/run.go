package outbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// Client takes messages: a *device.Client. Its Overflow has to be Block, the default, for what it drops would never reach the hub.
type Client interface {
	Enqueue(ctx context.Context, m *transport.Message, r *device.Receipt) error
}

// slot is a message that the client has, or had. number is its record's.
type slot struct {
	message transport.Message
	receipt device.Receipt
	number  uint64
	err     error // the client did not take it, or it was never handed over
}

// Run hands over to the client what waits, in order, and what comes, until the client or the queue is closed (Closed), ctx ends (its error), or the files cannot be read. One Run runs at a time; another one waits for its end. What the
// client still had when Run ended counts as not sent: a later Run, with another client, begins with it.
func (q *Queue) Run(ctx context.Context, to Client) error {
	select {
	case q.running <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-q.life.Done():
		return errClosed
	}
	defer func() { <-q.running }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(q.life, func() { cancel(errClosed) })()

	sent := make(chan *slot, q.opt.Window)
	free := make(chan *slot, q.opt.Window)
	for range q.opt.Window {
		free <- nil // made when it is needed
	}
	var wait sync.WaitGroup
	var settleErr error
	wait.Go(func() {
		if settleErr = q.settle(ctx, sent, free); settleErr != nil {
			cancel(settleErr)
		}
	})
	err := q.feed(ctx, to, sent, free)
	close(sent)
	if transport.KindOf(err) != transport.Closed {
		cancel(err) // with a client that is closed the results are there
	}
	wait.Wait()
	if settleErr != nil && !errors.Is(settleErr, context.Canceled) {
		return settleErr
	}
	return err
}

// feed reads records and hands them over.
func (q *Queue) feed(ctx context.Context, to Client, sent chan<- *slot, free <-chan *slot) error {
	var c cursor
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
		if err := q.readNext(ctx, &c, s); err != nil {
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
			if err = s.receipt.Wait(ctx); err != nil && transport.Find(err) == nil {
				return err // ctx ended
			}
		}
		switch kind := transport.KindOf(err); {
		case err == nil || err == errDamaged:
		case kind == transport.Closed:
			return err
		case kind == transport.Dropped:
			return invalid("the client dropped a message; set its Overflow to Block")
		case q.opt.OnFailed != nil:
			q.opt.OnFailed(&s.message, err)
		}
		q.finish(s.number, err, len(sent) == 0)
		s.message.Body = nil // it need not stay in memory until the slot has its next one
		free <- s
	}
	return nil
}

// cursor is where Run reads.
type cursor struct {
	at      uint64 // the record to be read
	begun   bool
	segment *segment
	file    *os.File
	records *records
}

func (c *cursor) close() {
	if c.file != nil {
		_ = c.file.Close()
	}
	c.segment, c.file, c.records = nil, nil, nil
}

// readNext waits for the next record and reads it into s, whose err is errDamaged if that is not possible.
func (q *Queue) readNext(ctx context.Context, c *cursor, s *slot) error {
	for {
		grown, err := q.aim(c)
		switch {
		case err != nil:
			return err
		case grown != nil:
			select {
			case <-grown:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			continue
		}
		message, err := c.records.read()
		if err != nil && err != errDamaged {
			return fmt.Errorf("outbox: %s: %w", c.segment.path, err)
		}
		if c.records.number <= c.at { // on the way to the record
			continue
		}
		if err == nil && readMessage(message, &s.message) != nil {
			err = errDamaged
		}
		s.number, s.err = c.at, err
		c.at++
		return nil
	}
}

// aim makes the cursor ready to read a record, or returns what to wait for.
func (q *Queue) aim(c *cursor) (grown <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errClosed
	}
	if !c.begun {
		c.at, c.begun = q.done, true
	}
	c.at = max(c.at, q.done) // DropOldest passes by
	if c.segment != nil && (c.at >= c.segment.next && c.segment.file == nil || c.at < c.segment.first) {
		c.close()
	}
	if c.at >= q.next {
		return waitFor(&q.grown), nil
	}
	if c.segment == nil {
		for _, s := range q.segments {
			if c.at < s.next {
				c.segment = s
				break
			}
		}
		if c.at < c.segment.first { // a gap
			c.at = c.segment.first
		}
		if c.file, err = os.Open(c.segment.path); err != nil {
			c.segment = nil
			return nil, fmt.Errorf("outbox: %w", err)
		}
		if c.records, err = newRecords(c.file, c.segment.first, c.segment.size); err != nil {
			return nil, fmt.Errorf("outbox: %w", err)
		}
	}
	c.records.limit = c.segment.size
	return nil, nil
}
