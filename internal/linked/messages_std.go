//go:build !tinygo

package linked

// Messages reports whether SetMessages was called, on boards. Elsewhere it is true.
func Messages() bool { return true }

// SetMessages is called where a program handles cloud-to-device messages.
func SetMessages() {}
