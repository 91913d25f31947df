// Package callback calls the caller's functions, which may panic or end their goroutine
// (runtime.Goexit, as t.FailNow does). It converts both to an error.
package callback

import (
	"errors"

	"github.com/hubline-iot/hubline/internal/scrub"
)

// Error reports a callback that did not return.
type Error struct {
	// Name is the name of the callback: "Credentials.Sign".
	Name string
	// Panic is the value that it panicked with, nil if it ended its goroutine.
	Panic any
}

// Error names the callback and the failure. It shows no secrets.
func (e *Error) Error() string {
	text := "callback " + e.Name
	switch v := e.Panic.(type) {
	case nil:
		return text + " ended its goroutine (runtime.Goexit)"
	case error:
		return text + " panicked: " + scrub.Cause(v).Error()
	case string:
		return text + " panicked: " + scrub.Cause(errors.New(v)).Error()
	}
	return text + " panicked"
}

// Unwrap returns the error that the callback panicked with, if it was one, as scrub.Cause does.
func (e *Error) Unwrap() error {
	err, _ := e.Panic.(error)
	return scrub.Cause(err)
}

// Call is Run for a callback that returns an error, which it passes through scrub.Cause: then its
// methods do not panic.
func Call(name string, f func() error) (err error) {
	if failed := Run(name, func() { err = scrub.Cause(f()) }); failed != nil {
		return failed
	}
	return err
}
