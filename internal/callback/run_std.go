//go:build !tinygo

package callback

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
