//go:build tinygo

package callback

// Recovers is false: see Run.
const Recovers = false

// Run calls f and returns nil. On a board a callback must return: recover does not catch most
// panics there, and none with -panic=trap, and a goroutine per call would cost its stack.
func Run(_ string, f func()) error {
	f()
	return nil
}

// Protect calls f, which must return.
func Protect(f func(), _ func(v any)) (panicked bool) {
	f()
	return false
}

// Watch calls f, which must return, and then after.
func Watch(f func(), after func(returned bool)) {
	f()
	after(true)
}
