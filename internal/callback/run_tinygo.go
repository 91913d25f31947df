//go:build tinygo

package callback

// Run calls f. The error, an *Error, says that f panicked, on boards whose compiler can recover. A
// goroutine for each call would cost its stack; a callback on a board must not end its goroutine.
func Run(name string, f func()) (err error) {
	returned := false
	defer func() {
		if !returned {
			err = &Error{Name: name, Panic: recover()}
		}
	}()
	f()
	returned = true
	return nil
}
