//go:build !tinygo

package callback

import "errors"

// Recovers is whether a program goes on after a callback that panics.
const Recovers = true

// Run calls f on a new goroutine and waits for it. It returns an *Error if f did not return. It is
// too slow for a call per message.
func Run(name string, f func()) error {
	done := make(chan error, 1)
	go func() {
		failure := &Error{Name: name}
		returned := false
		defer func() {
			if returned {
				done <- nil
				return
			}
			failure.Panic = recover()
			done <- failure
		}()
		f()
		returned = true
	}()
	return <-done
}

// Protect calls f on this goroutine and reports whether it panicked. failed gets the panic value,
// also when f ends the goroutine: then an error.
func Protect(f func(), failed func(v any)) (panicked bool) {
	done := false
	defer func() {
		v := recover()
		if done {
			return
		}
		if v == nil {
			v = errExit
		}
		panicked = true
		failed(v)
	}()
	f()
	done = true
	return false
}

var errExit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// Watch calls f and then after, with whether f returned. It did not if it ended the goroutine.
func Watch(f func(), after func(returned bool)) {
	returned := false
	defer func() { after(returned) }()
	f()
	returned = true
}
