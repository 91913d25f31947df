package lean

import "context"

// afterEnd has f run in a goroutine of its own when ctx has ended, unless stop is called before and
// returns true. It is context.AfterFunc by the method that this looks for, which the contexts of
// package device have: so a board's program does not link the rest.
func afterEnd(ctx context.Context, f func()) (stop func() bool) {
	if a, ok := ctx.(interface{ AfterFunc(f func()) func() bool }); ok {
		return a.AfterFunc(f)
	}
	stopped := make(chan chan bool)
	over := make(chan struct{})
	go func() { // ends with ctx or stop
		select {
		case <-ctx.Done():
			go f()
		case answer := <-stopped:
			answer <- true
		}
		close(over)
	}()
	return func() bool {
		answer := make(chan bool, 1)
		select {
		case stopped <- answer:
			return <-answer
		case <-over:
			return false
		}
	}
}
