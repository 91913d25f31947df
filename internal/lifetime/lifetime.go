// Package lifetime has contexts for boards. Those of package context link maps and reflection into
// a board's program.
package lifetime

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Context is a context that ends with a call of End, or with its parent, or at its deadline. Make
// it with New, Within or WithinTime. It is safe for concurrent use.
type Context struct {
	// own hides the state: the compiler for boards links a description of each type that an interface
	// holds, with the types of its fields and all of their methods. A mutex and a time have many.
	own func() *state
}

type state struct {
	parent   context.Context // nil: none
	stop     func() bool     // ends the wait for the parent
	done     chan struct{}
	deadline time.Time // zero: none

	mu    sync.Mutex
	err   error
	after []*waiter
}

// Methods as values instead of closures: a board allocates 16 bytes for each variable that a
// closure captures.

// waiter is a call of AfterFunc.
type waiter struct {
	s *state
	f func()
}

var _ context.Context = (*Context)(nil)

// New returns a context without a parent.
func New() *Context {
	s := &state{done: make(chan struct{})}
	return &Context{own: s.self}
}

func (s *state) self() *state { return s }

// Within returns a child of parent and its cancel function, which must be called.
func Within(parent context.Context) (child *Context, cancel func()) {
	child = New()
	s := child.own()
	s.parent = parent
	s.stop = AfterFunc(parent, s.parentEnded)
	return child, s.cancel
}

func (s *state) parentEnded() { s.end(s.parent.Err()) }

func (s *state) cancel() {
	s.stop()
	s.end(context.Canceled)
}

// WithinTime is Within, with a deadline. The child ends with context.DeadlineExceeded after d.
func WithinTime(parent context.Context, d time.Duration) (child *Context, cancel func()) {
	child, end := Within(parent)
	s := child.own()
	s.deadline = time.Now().Add(d)
	late := time.AfterFunc(d, s.expire)
	return child, func() {
		late.Stop()
		end()
	}
}

func (s *state) expire() { s.end(context.DeadlineExceeded) }

// End ends the context with context.Canceled, unless it has ended.
func (l *Context) End() { l.own().end(context.Canceled) }

func (s *state) end(why error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = why
		close(s.done)
		for _, w := range s.after {
			go w.f()
		}
		s.after = nil
	}
	s.mu.Unlock()
}

// AfterFunc implements the method that context.AfterFunc looks for: it runs f in its own goroutine
// when l has ended, unless stop was called before and returned true.
func (l *Context) AfterFunc(f func()) (stop func() bool) {
	s := l.own()
	w := &waiter{s, f}
	s.mu.Lock()
	if s.err == nil {
		s.after = append(s.after, w)
	} else {
		go f()
	}
	s.mu.Unlock()
	return w.stop
}

func (w *waiter) stop() bool {
	s := w.s
	s.mu.Lock()
	at := slices.Index(s.after, w)
	if at >= 0 {
		s.after = slices.Delete(s.after, at, at+1)
	}
	s.mu.Unlock()
	return at >= 0
}

// Deadline returns the deadline of WithinTime, not an earlier one of the parent.
func (l *Context) Deadline() (deadline time.Time, ok bool) {
	at := l.own().deadline
	return at, !at.IsZero()
}

// Done returns a channel that is closed when the context ends.
func (l *Context) Done() <-chan struct{} { return l.own().done }

// Value returns the parent's value.
func (l *Context) Value(key any) any {
	parent := l.own().parent
	if parent == nil {
		return nil
	}
	return parent.Value(key)
}

// Err returns nil as long as the context lasts, then context.Canceled, context.DeadlineExceeded or
// the parent's error.
func (l *Context) Err() error {
	s := l.own()
	s.mu.Lock()
	err := s.err
	s.mu.Unlock()
	return err
}
