package lifetime

import "context"

// AfterFunc runs f in a goroutine when ctx ends, unless stop is called first and returns true. It
// works like context.AfterFunc and uses the method AfterFunc that a Context has, so a board's
// program does not link the rest of context.AfterFunc.
func AfterFunc(ctx context.Context, f func()) (stop func() bool) {
	if a, ok := ctx.(interface{ AfterFunc(f func()) func() bool }); ok {
		return a.AfterFunc(f)
	}
	if ctx.Done() == nil {
		return func() bool { return true } // ctx never ends, so no goroutine waits for it
	}
	stopped := make(chan chan bool)
	over := make(chan struct{})
	go func() { // ends with ctx or stop
		var answer chan bool
		select {
		case <-ctx.Done():
		case answer = <-stopped:
		}
		ended := ctx.Err() != nil // also when both were ready
		if ended {
			go f()
		}
		if answer != nil {
			answer <- !ended
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
