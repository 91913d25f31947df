//go:build !tinygo

package callback

// Run calls f, on a goroutine of its own, and waits for it. The error, an *Error, says that f did
// not return. It is not for what happens once a message.
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
