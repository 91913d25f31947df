package device

import "github.com/hubline-iot/hubline/transport"

// halt refuses further calls of Send and ends the waiting ones; enqueued messages stay.
func (b *outbox) halt(err *transport.Error) {
	b.mu.Lock()
	b.halted = err
	b.wakeBlockedLocked()
	b.armSweepLocked()
	for i := b.head; i != none; {
		next := b.slots[i].next
		if b.slots[i].call {
			b.totals.cancelled++
			b.removeLocked(i, b.outcomeLocked(i, err))
		}
		i = next
	}
	for _, f := range b.flushers {
		f.done <- err
	}
	b.flushers = nil
	b.mu.Unlock()
}

// whyHalted returns why Send is refused, nil if it is not.
func (b *outbox) whyHalted() *transport.Error {
	b.mu.Lock()
	why, _ := b.halted.(*transport.Error)
	if b.closed {
		why = errClosed
	}
	b.mu.Unlock()
	return why
}

// resume allows Send again.
func (b *outbox) resume() {
	b.mu.Lock()
	b.halted = nil
	if b.sweep != nil {
		b.sweep.Stop()
	}
	b.mu.Unlock()
}

// shut refuses all further messages.
func (b *outbox) shut() {
	b.mu.Lock()
	b.closed = true
	b.wakeBlockedLocked()
	if b.sweep != nil {
		b.sweep.Stop()
	}
	b.mu.Unlock()
}

// drain gives all remaining messages the result Closed. No loop may run.
func (b *outbox) drain() {
	b.halt(errClosed)
	b.mu.Lock()
	for b.head != none {
		b.totals.cancelled++
		b.removeLocked(b.head, b.outcomeLocked(b.head, errClosed))
	}
	b.mu.Unlock()
}
