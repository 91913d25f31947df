// Package callback calls functions of the program, which may panic or end their goroutine
// (runtime.Goexit, as t.FailNow does). Both become an error, so the caller goes on.
package callback

// Error is a callback that did not return.
type Error struct {
	// Name says which one: "Credentials.Sign".
	Name string
	// Panic is what it panicked with, nil if it ended its goroutine.
	Panic any
}

// Error names the callback and says what it did.
func (e *Error) Error() string {
	text := "callback " + e.Name
	switch v := e.Panic.(type) {
	case nil:
		return text + " ended its goroutine (runtime.Goexit)"
	case error:
		return text + " panicked: " + v.Error()
	case string:
		return text + " panicked: " + v
	}
	return text + " panicked"
}

// Unwrap returns the error that the callback panicked with, if it was one.
func (e *Error) Unwrap() error {
	err, _ := e.Panic.(error)
	return err
}
