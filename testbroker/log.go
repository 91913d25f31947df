package testbroker

import (
	"bytes"
	"context"
	"sync"
)

// Conflict is a pair of messages that one sender gave the same message id although their bodies differ. A sender that
// repeats a message after a loss must repeat it unchanged.
type Conflict struct {
	First, Second Message
}

// telemetryLog holds the messages in order of arrival. It only grows, so a slice of it may be read without the lock.
type telemetryLog struct {
	mu        sync.Mutex
	messages  []Message
	first     map[messageKey]int // index of the first message with that id
	conflicts []Conflict
}

type messageKey struct {
	sender identity
	id     string
}

func (l *telemetryLog) add(m Message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if m.MessageID != "" {
		key := messageKey{m.sender(), m.MessageID}
		if i, ok := l.first[key]; !ok {
			l.first[key] = len(l.messages)
		} else if !bytes.Equal(l.messages[i].Body, m.Body) {
			l.conflicts = append(l.conflicts, Conflict{l.messages[i], m})
		}
	}
	l.messages = append(l.messages, m)
}

func (l *telemetryLog) view() []Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.messages[:len(l.messages):len(l.messages)]
}

// Messages returns a copy of the log: all messages in the order in which the hub stored them.
func (h *Hub) Messages() []Message {
	all := append([]Message(nil), h.log.view()...)
	for i := range all {
		all[i] = all[i].clone()
	}
	return all
}

// Len returns the number of messages in the log.
func (h *Hub) Len() int { return len(h.log.view()) }

// Conflicts returns the pairs of messages that have the same sender and message id, but not the same body.
func (h *Hub) Conflicts() []Conflict {
	h.log.mu.Lock()
	defer h.log.mu.Unlock()
	all := append([]Conflict(nil), h.log.conflicts...)
	for i, c := range all {
		all[i] = Conflict{c.First.clone(), c.Second.clone()}
	}
	return all
}

// WaitMessages waits until the log holds at least n messages. It fails when the context ends or the hub is closed.
func (h *Hub) WaitMessages(ctx context.Context, n int) error {
	return h.until(ctx, func() bool { return h.Len() >= n })
}

// Wait waits until ok returns true. It is asked at once, and again after each change: a message stored, a connection
// that came or went, a fault that fired, a request about a twin, a method called or answered. It may call methods of the
// hub that do not wait; it must not modify the log it is given. Wait fails when the context ends or the hub is closed.
func (h *Hub) Wait(ctx context.Context, ok func(log []Message) bool) error {
	return h.until(ctx, func() bool { return ok(h.log.view()) })
}

func (h *Hub) until(ctx context.Context, ok func() bool) error {
	for {
		changed := h.changed.next()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.done:
			return ErrClosed
		}
	}
}

// A notifier wakes all that wait for something to change. It costs next to nothing while nobody waits.
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

func (n *notifier) wake() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}
