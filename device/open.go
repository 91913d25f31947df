package device

import (
	"context"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Start begins to connect in the background. It has no effect on an open client. On a Disconnected
// client it starts over, with the count of retries at 0. Attempts that it begins so are at least
// 100 ms apart, as those of Reconnect and Open. After Close it returns Closed.
func (c *Client) Start() error {
	_, _, err := c.start(true)
	return err
}

// start returns the current run, or begins one. With keep, the run outlives the context of an Open.
func (c *Client) start(keep bool) (r *run, began bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return nil, false, &transport.Error{Kind: transport.Closed, Op: transport.OpOpen, Err: errClosed.Err}
	}
	if c.run != nil && !c.run.over {
		c.run.kept = true
		return c.run, false, nil
	}
	before := c.run
	ctx := lifetime.New()
	r = &run{cancel: ctx.End, done: make(chan struct{}), kept: keep}
	c.run = r
	c.reconnect.Store(before != nil)
	c.queue.resume()
	if x := c.features(); x != nil {
		x.resume()
	}
	c.publishLocked(Status{State: StateDisconnectedRetrying, Reason: ReasonConnecting})
	go func() { // the loop; ends with Disconnected or cancel, joined by Close
		first := connecting
		if before != nil {
			<-before.done
			first = restarting
		}
		newLoop(c, ctx, r).run(first)
	}()
	return r, true, nil
}

// Open starts the client and waits for the first connection, which is retried like any other. It
// fails in three cases:
//
//   - a failure that is not retryable, or the end of the retries: with that failure;
//   - the end of ctx: with Cancelled. The client stops if this Open started it and no other Open or
//     Start was called since; that takes CloseTimeout at most;
//   - Close: with Closed.
//
// On a connected client Open returns at once.
func (c *Client) Open(ctx context.Context) error {
	r, began, err := c.start(false)
	if err != nil {
		return err
	}
	for {
		c.mu.Lock()
		status, over, err, last := c.status, r.over, r.err, r.last
		if c.changed == nil && !over && status.State != StateConnected {
			c.changed = make(chan struct{})
		}
		changed := c.changed
		c.mu.Unlock()

		switch {
		case over:
			return err
		case status.State == StateConnected:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			gaveUp := operr.Cancelled(ctx, transport.OpOpen, transport.ScopeConnection, last)
			if began {
				c.stop(r, gaveUp)
			}
			return gaveUp
		}
	}
}

// stop ends the run of an Open that gave up, unless another caller uses it.
func (c *Client) stop(r *run, why *transport.Error) {
	c.mu.Lock()
	if r.kept || r.over {
		c.mu.Unlock()
		return
	}
	r.over, r.err = true, why // the next Start begins a new run after this one
	c.mu.Unlock()
	r.cancel()
	c.join(r.done)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == r && !c.shut { // Close says so itself
		c.publishLocked(Status{State: StateDisconnected, Reason: ReasonOpenCancelled, Err: why})
		c.halt(errGaveUp) // the context that ended is not that of other calls
	}
}

// Close ends the client for good. It disconnects from the hub, ends the client's goroutines, and
// gives each message without a result the result Closed; call Flush first to send them. It waits at
// most CloseTimeout each for handlers and their answers, for the transport, and for a running
// OnStatus. What has not ended by then is named in the Timeout that Close returns: a goroutine that
// is left running, or an answer that was not sent. After nil, none is left. Further calls wait for
// the first and return nil.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.shut {
		c.mu.Unlock()
		<-c.closed
		return nil
	}
	c.shut = true
	r := c.run
	c.mu.Unlock()

	c.queue.shut()
	var late lateSteps
	x := c.features()                    // shut is set, so no feature is added any more
	if x != nil && !c.join(x.end()...) { // before the loop ends, because it sends the handlers' results
		late.add("a handler did not return, or its answer was not sent, within CloseTimeout; a handler that calls Close " +
			"must do so in another goroutine, because Close waits for it")
	}
	if r != nil {
		r.cancel()
		if !c.join(r.done) {
			late.add("the transport did not end within CloseTimeout")
		}
	}
	c.queue.drain()
	if x != nil {
		x.halt(errClosed)
	}

	c.mu.Lock()
	if r != nil && !r.over {
		r.over, r.err = true, &transport.Error{Kind: transport.Closed, Scope: transport.ScopeConnection, Op: transport.OpOpen,
			Err: errClosed.Err}
	}
	c.publishLocked(Status{State: StateDisconnected, Reason: ReasonClientClosed})
	dispatching, ended := c.notices.running, c.notices.ended
	c.mu.Unlock()
	if dispatching && !c.join(ended) {
		late.add("OnStatus did not return within CloseTimeout; if it calls Close, do so in another goroutine, because " +
			"Close waits for it")
	}
	close(c.closed)
	return late.err
}

// lateSteps collects the steps of Close that did not end in time.
type lateSteps struct{ err error }

func (l *lateSteps) add(what string) {
	err := errors.New(what)
	if l.err != nil {
		err = errors.New(transport.Find(l.err).Err.Error() + "; " + what)
	}
	l.err = timedOut(transport.OpClose, transport.ScopeConnection, err, nil)
}

// join waits until all channels are closed, for at most CloseTimeout, and reports whether they are.
func (c *Client) join(all ...<-chan struct{}) bool {
	late := newAlarm(c.set.CloseTimeout)
	for _, one := range all {
		select {
		case <-one:
		case <-late.fired:
			return false
		}
	}
	late.stop()
	return true
}

// Reconnect replaces the connection now. It ends the wait for the next attempt, or hangs up a live
// connection, which is reported as Planned and asks no policy. A running handler, and a write that
// the network does not take, have 1 s before that. Call Reconnect when the program knows more than
// the client, for example that the network changed or the device woke up. During an attempt that
// fails it makes the next one follow at once. Attempts that it begins are at least 100 ms apart.
// The count of retries stays. It returns Closed on a client that is not open.
func (c *Client) Reconnect() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.shut:
		return c.closedBefore("Reconnect")
	case c.run == nil || c.run.over:
		return &transport.Error{Kind: transport.Closed, Err: errors.New("Reconnect needs an open client; " +
			"call Open or Start")}
	}
	c.reconnect.Store(true)
	c.poke()
	if hangUp := c.run.hangUp; hangUp != nil {
		// By then the loop has replaced the session, or is stuck in a write.
		time.AfterFunc(handlerTime, hangUp)
	}
	return nil
}

// SetRetryPolicy sets the policy for connections, and for messages unless Options.MessagePolicy or
// SetMessagePolicy set another one. It works at any time. The new policy also decides about a
// running wait, counted from its beginning, and may shorten, lengthen or end it. The random part of
// Options.ReconnectSpread comes on top of its delays for connections. An error of Kind Invalid
// names the invalid parameter; the old policy then stays. After Close the error is Closed.
func (c *Client) SetRetryPolicy(p retrypolicy.Policy) error {
	if err := retrypolicy.Validate(p); err != nil {
		return err
	}
	return c.setPolicies("SetRetryPolicy", func(now policies) policies { return now.withConnection(p) })
}

// SetMessagePolicy sets the policy for messages and twin calls only, like Options.MessagePolicy.
// nil makes them follow the policy for connections again. It works at any time, like
// SetRetryPolicy.
func (c *Client) SetMessagePolicy(p retrypolicy.Policy) error {
	if p != nil {
		if err := retrypolicy.Validate(p); err != nil {
			return err
		}
	}
	return c.setPolicies("SetMessagePolicy", func(now policies) policies { return now.withMessage(p) })
}

func (c *Client) setPolicies(call string, change func(policies) policies) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.shut {
		return c.closedBefore(call)
	}
	next := change(*c.policies.Load())
	c.policies.Store(&next)
	c.poke()
	return nil
}

// closedBefore is the error of a call after Close.
func (c *Client) closedBefore(call string) error {
	return &transport.Error{Kind: transport.Closed, Err: errors.New("Close was called before " + call +
		"; make another client")}
}
