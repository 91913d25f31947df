// Package lifetime has contexts for boards. Those of package context link 9 KB of maps, reflection
// and formatted times into a board's program.
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
	parent   context.Context // nil: none
	done     chan struct{}
	deadline time.Time // zero: none

	mu    sync.Mutex
	err   error
	after []*waiter
}

// waiter is a call of AfterFunc.
type waiter struct{ f func() }

var _ context.Context = (*Context)(nil)

// New returns a context without a parent.
func New() *Context { return &Context{done: make(chan struct{})} }

// Within returns a child of parent and its cancel function, which must be called.
func Within(parent context.Context) (child *Context, cancel func()) {
	child = New()
	child.parent = parent
	stop := AfterFunc(parent, func() { child.end(parent.Err()) })
	return child, func() {
		stop()
		child.End()
	}
}

// WithinTime is Within, with a deadline. The child ends with context.DeadlineExceeded after d.
func WithinTime(parent context.Context, d time.Duration) (child *Context, cancel func()) {
	child, end := Within(parent)
	child.deadline = time.Now().Add(d)
	late := time.AfterFunc(d, func() { child.end(context.DeadlineExceeded) })
	return child, func() {
		late.Stop()
		end()
	}
}

// End ends the context with context.Canceled, unless it has ended.
func (l *Context) End() { l.end(context.Canceled) }

func (l *Context) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	l.err = why
	close(l.done)
	for _, w := range l.after {
		go w.f()
	}
	l.after = nil
}

// AfterFunc implements the method that context.AfterFunc looks for: it runs f in its own goroutine
// when l has ended, unless stop was called before and returned true.
func (l *Context) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		go f()
		return func() bool { return false }
	}
	w := &waiter{f}
	l.after = append(l.after, w)
	return func() bool { return l.forget(w) }
}

// forget reports whether w still waited.
func (l *Context) forget(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.Index(l.after, w)
	if at >= 0 {
		l.after = slices.Delete(l.after, at, at+1)
	}
	return at >= 0
}

// Deadline returns the deadline of WithinTime, not an earlier one of the parent.
func (l *Context) Deadline() (deadline time.Time, ok bool) { return l.deadline, !l.deadline.IsZero() }

// Done returns a channel that is closed when the context ends.
func (l *Context) Done() <-chan struct{} { return l.done }

// Value returns the parent's value.
func (l *Context) Value(key any) any {
	if l.parent == nil {
		return nil
	}
	return l.parent.Value(key)
}

// Err returns nil as long as the context lasts, then context.Canceled, context.DeadlineExceeded or
// the parent's error.
func (l *Context) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
