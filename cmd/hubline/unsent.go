package main

import (
	"fmt"
	"io"
	"sync"
)

// unsent are the messages of a command that are not sent, and why. A stream may go on for weeks, so
// they are printed when they fail: the first, the second, the fourth and so on, because an outage
// may end thousands in the same way.
type unsent struct {
	log io.Writer // nil: nothing is printed, and the first failure is the command's

	mu    sync.Mutex // guards the rest
	n     int
	first error
}

// add counts a message. what names it.
func (u *unsent) add(what string, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.n++; u.n == 1 {
		u.first = err
	}
	if u.log != nil && u.n&(u.n-1) == 0 {
		fmt.Fprintf(u.log, "%s is not sent (%d so far): %v\n", what, u.n, err)
	}
}

// err returns the error of the command; nil if everything was sent.
func (u *unsent) err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.first == nil || u.log == nil:
		return u.first
	case u.n == 1:
		return &exitError{statusOf(u.first), fmt.Errorf("1 message was not sent: %w", u.first)}
	}
	return &exitError{statusOf(u.first), fmt.Errorf("%d messages were not sent; the first: %w", u.n, u.first)}
}
