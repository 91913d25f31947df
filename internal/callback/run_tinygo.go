//go:build tinygo

package callback

// Run calls f and returns nil. On a board a callback must return: recover does not catch most
// panics there, and none with -panic=trap, and a goroutine per call would cost its stack.
func Run(_ string, f func()) error {
	f()
	return nil
}
