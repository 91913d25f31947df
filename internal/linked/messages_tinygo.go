//go:build tinygo

package linked

var messages bool

// Messages reports whether SetMessages was called.
func Messages() bool { return messages }

// SetMessages is called where a program handles cloud-to-device messages.
func SetMessages() { messages = true }
