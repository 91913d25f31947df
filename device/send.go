package device

import (
	"context"
	"errors"
	"strconv"

	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/transport"
)

func (c *Client) newCall() *call {
	var k *call
	select {
	case k = <-c.calls:
	default:
		k = new(call)
	}
	k.receipt.take()
	return k
}

func (c *Client) keepCall(k *call) {
	if k.alarm != nil && !k.alarm.stop() {
		return
	}
	k.receipt.free()
	select {
	case c.calls <- k:
	default:
	}
}

// Send puts m into the queue and waits for its result; nil means that the hub has acknowledged it,
// or with QoS 0 that it was written. The wait continues across reconnects. It fails with
//
//   - Invalid, TooLarge or Expired at once, when m can never be sent;
//   - Closed, when the client is not open or is closed meanwhile;
//   - the failure that made the client Disconnected, meanwhile or before;
//   - Cancelled, when ctx ended first, or Timeout, when OperationTimeout did: the message is
//     withdrawn, unless transport.ErrOutcomeUnknown is in the error's chain;
//   - the service's refusal of this message, Expired or Dropped.
//
// In each case transport.ErrOutcomeUnknown in the chain means that the hub may have received the
// message. m must not be changed until Send returns. After a Cancelled or Timeout with
// transport.ErrOutcomeUnknown the client may still be sending m: do not reuse its memory before
// Close has returned. A program that reuses buffers calls Enqueue and keeps the Receipt, whose Wait
// may be repeated.
func (c *Client) Send(ctx context.Context, m *transport.Message) error {
	size, err := c.check(m)
	if err != nil {
		return err
	}
	k := c.newCall()
	defer c.keepCall(k)
	var late <-chan struct{}
	if limit := c.set.OperationTimeout; limit > 0 {
		if k.alarm == nil {
			k.alarm = newAlarm(limit)
		} else {
			k.alarm.set(limit)
		}
		late = k.alarm.fired
	}
	tag, seq, err := c.put(ctx, late, offer{m, size, &k.receipt, true})
	if err != nil {
		return err
	}
	if k.receipt.await(ctx, late) {
		return k.receipt.err
	}
	switch c.queue.withdraw(tag, seq) {
	case resolved:
		return k.receipt.err
	case unknown:
		return gaveUp(ctx, transport.OpSend, errSendTimeout, transport.ErrOutcomeUnknown)
	default:
		return gaveUp(ctx, transport.OpSend, errSendTimeout, c.trouble())
	}
}

// Enqueue puts m into the queue and returns. It may be called as soon as New returned, also while
// the client is Disconnected. r receives the result; it may be nil. When the queue is full,
// Options.Overflow applies; Block waits for room until ctx ends (Cancelled).
//
// An error means that m was not accepted and r is free: Invalid, TooLarge, Expired, Closed,
// Cancelled, or Dropped under Fail. Otherwise m must not be changed until its result is known.
func (c *Client) Enqueue(ctx context.Context, m *transport.Message, r *Receipt) error {
	size, err := c.check(m)
	if err != nil {
		return err
	}
	if r != nil && !r.take() {
		return errReceiptBusy
	}
	_, _, err = c.put(ctx, nil, offer{m, size, r, false})
	if err != nil && r != nil {
		r.free()
	}
	return err
}

// check returns m's size, or an error if m cannot be sent over any connection.
func (c *Client) check(m *transport.Message) (size int, err error) {
	if m == nil {
		return 0, &transport.Error{Kind: transport.Invalid, Op: transport.OpSend, Err: errors.New("the message is nil")}
	}
	if err := m.Validate(); err != nil {
		return 0, err
	}
	if !m.Expires.IsZero() && !c.creds.Time().Before(m.Expires) {
		return 0, errExpired
	}
	size = m.Size()
	if size > c.set.MaxBytes {
		return 0, &transport.Error{Kind: transport.TooLarge, Op: transport.OpSend, Err: errors.New("message of " +
			strconv.Itoa(size) + " bytes is over Options.MaxBytes, " + strconv.Itoa(c.set.MaxBytes) +
			", the limit of the whole queue; give MaxBytes more, or split the message")}
	}
	return size, nil
}

// put offers a message to the queue until it is taken or refused, or ctx or late ends the wait for
// room.
func (c *Client) put(ctx context.Context, late <-chan struct{}, o offer) (tag uint16, seq uint64, err error) {
	for {
		tag, seq, room, err := c.queue.put(o)
		if room == nil {
			return tag, seq, err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return 0, 0, gaveUp(ctx, transport.OpSend, nil, errFull.Err)
		case <-late:
			return 0, 0, gaveUp(ctx, transport.OpSend, errNoRoom, errFull.Err)
		}
	}
}

// Flush waits until every message accepted before the call has its result. It returns Cancelled
// when ctx ends first. If the client is or becomes Disconnected with messages left, Flush returns
// the reason.
func (c *Client) Flush(ctx context.Context) error {
	done, err := c.queue.flush()
	if done == nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		c.queue.unflush(done)
		return operr.Cancelled(ctx, transport.OpSend, transport.ScopeOperation, c.trouble())
	}
}
