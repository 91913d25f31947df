package hub

import (
	"bytes"
	"context"
	"sync"
)

// Conflict is a pair of messages that one sender gave the same message id although their bodies
// differ. A sender that repeats a message after a loss must repeat it unchanged.
type Conflict struct {
	First, Second Message
}

// telemetryLog holds the messages in order of arrival.
type telemetryLog struct {
	mu        sync.Mutex
	messages  history[Message]
	copies    map[messageKey]copies // of those in messages that have an id
	conflicts history[Conflict]
}

func (l *telemetryLog) init(keep int) {
	l.messages.keep, l.conflicts.keep = keep, keep
	l.copies = make(map[messageKey]copies)
}

type messageKey struct {
	sender Identity
	id     string
}

// copies are the sequence numbers of the first message with an id and of the last one that repeats
// it unchanged.
type copies struct{ first, last int }

func (m *Message) key() messageKey { return messageKey{SenderOf(m), m.MessageID} }

func (l *telemetryLog) add(m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.Sequence = l.messages.total() + 1
	if m.MessageID != "" {
		l.compareLocked(&m)
	}
	if old, forgot := l.messages.add(m); forgot && old.MessageID != "" {
		l.forgetLocked(&old)
	}
}

// compareLocked compares a message with the first one of its id.
func (l *telemetryLog) compareLocked(m *Message) {
	c, again := l.copies[m.key()]
	if !again {
		c.first = m.Sequence
	} else if first := &l.messages.entries[c.first-1-l.messages.forgotten]; !bytes.Equal(first.Body, m.Body) {
		l.conflicts.add(Conflict{*first, *m})
		return
	}
	c.last = m.Sequence
	l.copies[m.key()] = c
}

// forgetLocked has a copy that is kept take the place of a message that is not, if that was the
// first of its id.
func (l *telemetryLog) forgetLocked(old *Message) {
	switch c := l.copies[old.key()]; old.Sequence {
	case c.last:
		delete(l.copies, old.key())
	case c.first:
		l.copies[old.key()] = copies{c.last, c.last}
	}
}

func (l *telemetryLog) view() []Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.messages.view()
}

// Messages is testbroker.Hub.Messages.
func (h *Hub) Messages() []Message {
	all := append([]Message(nil), h.log.view()...)
	for i := range all {
		all[i] = all[i].clone()
	}
	return all
}

// Len is testbroker.Hub.Len.
func (h *Hub) Len() int {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	return h.log.messages.total()
}

// Forgotten is testbroker.Hub.Forgotten.
func (h *Hub) Forgotten() int {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	return h.log.messages.forgotten
}

// Conflicts is testbroker.Hub.Conflicts.
func (h *Hub) Conflicts() []Conflict {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	all := append([]Conflict(nil), h.log.conflicts.entries...)
	for i, c := range all {
		all[i] = Conflict{c.First.clone(), c.Second.clone()}
	}
	return all
}

// WaitMessages is testbroker.Hub.WaitMessages.
func (h *Hub) WaitMessages(ctx context.Context, n int) error {
	return h.until(ctx, func() bool { return h.Len() >= n })
}

// Wait waits until ok returns true. It is asked at once, and again after each change: a message
// stored, a connection that came or went, a fault that fired, a request about a twin, a method
// called or answered. It may call methods of the hub that do not wait; it must not modify the log
// it is given, which has what is kept: [Message.Sequence] tells the places of messages among all.
// Wait fails when the context ends or the hub is closed.
func (h *Hub) Wait(ctx context.Context, ok func(log []Message) bool) error {
	return h.until(ctx, func() bool { return ok(h.log.view()) })
}

func (h *Hub) until(ctx context.Context, ok func() bool) error {
	for {
		changed := h.Changed.next()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.Done:
			return ErrClosed
		}
	}
}

// A notifier wakes all that wait for something to change. It costs next to nothing while nobody
// waits.
type notifier struct {
	mu sync.Mutex
	ch chan struct{} // nil = nobody waits
}

// next returns a channel that is closed at the next change.
func (n *notifier) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *notifier) Wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}
