package device

import (
	"context"
	"slices"
	"sync"
	"time"
)

// lifetime is a context that ends with a call of end. It replaces context.WithCancel, which links
// maps and reflection into a board's program.
type lifetime struct {
	done     chan struct{}
	deadline time.Time // zero: none

	mu    sync.Mutex
	err   error
	after []*func()
}

func newLifetime() *lifetime { return &lifetime{done: make(chan struct{})} }

// within returns a child of l and its cancel function, which must be called.
func (l *lifetime) within() (*lifetime, func()) {
	child := newLifetime()
	stop := l.AfterFunc(child.end)
	return child, func() {
		stop()
		child.end()
	}
}

// withinTime is within, with a deadline.
func (l *lifetime) withinTime(d time.Duration) (*lifetime, func()) {
	child, end := l.within()
	child.deadline = time.Now().Add(d)
	late := time.AfterFunc(d, func() { child.endWith(context.DeadlineExceeded) })
	return child, func() {
		late.Stop()
		end()
	}
}

// end ends the context with context.Canceled, unless it has ended.
func (l *lifetime) end() { l.endWith(context.Canceled) }

func (l *lifetime) endWith(why error) {
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
func (l *lifetime) AfterFunc(f func()) (stop func() bool) {
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

// Deadline implements context.Context, as do Done, Value and Err.
func (l *lifetime) Deadline() (deadline time.Time, ok bool) {
	return l.deadline, !l.deadline.IsZero()
}

func (l *lifetime) Done() <-chan struct{} { return l.done }
func (l *lifetime) Value(any) any         { return nil }

func (l *lifetime) Err() error {
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	return err
}
