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
	parent   context.Context // nil: none
	done     chan struct{}
	deadline time.Time // zero: none

	mu    sync.Mutex
	err   error
	after []*func()
}

var _ context.Context = (*Context)(nil)

// New returns a context without a parent.
func New() *Context { return &Context{done: make(chan struct{})} }

// Within returns a child of parent and its cancel function, which must be called.
func Within(parent context.Context) (child *Context, cancel func()) {
	child = New()
	child.parent = parent
	stop := AfterFunc(parent, func() { child.endWith(parent.Err()) })
	return child, func() {
		stop()
		child.End()
	}
}

// WithinTime is Within, with a deadline. The child ends with context.DeadlineExceeded after d.
func WithinTime(parent context.Context, d time.Duration) (child *Context, cancel func()) {
	child, end := Within(parent)
	child.deadline = time.Now().Add(d)
	late := time.AfterFunc(d, func() { child.endWith(context.DeadlineExceeded) })
	return child, func() {
		late.Stop()
		end()
	}
}

// End ends the context with context.Canceled, unless it has ended.
func (l *Context) End() { l.endWith(context.Canceled) }

func (l *Context) endWith(why error) {
	l.mu.Lock()
	if l.err == nil {
		l.err = why
		close(l.done)
		for _, f := range l.after {
			go (*f)()
		}
		l.after = nil
	}
	l.mu.Unlock()
}

// AfterFunc implements the method that context.AfterFunc looks for: it runs f in its own goroutine
// when l has ended, unless stop was called before and returned true.
func (l *Context) AfterFunc(f func()) (stop func() bool) {
	mine := &f
	l.mu.Lock()
	if l.err == nil {
		l.after = append(l.after, mine)
	} else {
		go f()
	}
	l.mu.Unlock()
	return func() bool {
		l.mu.Lock()
		at := slices.Index(l.after, mine)
		if at >= 0 {
			l.after = slices.Delete(l.after, at, at+1)
		}
		l.mu.Unlock()
		return at >= 0
	}
}

// Deadline returns the deadline of WithinTime, not an earlier one of the parent.
func (l *Context) Deadline() (deadline time.Time, ok bool) {
	return l.deadline, !l.deadline.IsZero()
}

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
	err := l.err
	l.mu.Unlock()
	return err
}
