//go:build tinygo

package linked

var hub, inputs bool

// Hub reports whether SetHub was called.
func Hub() bool { return hub }

// Inputs reports whether SetInputs was called.
func Inputs() bool { return inputs }

// SetHub is called where a program chooses the dialect of a hub that has all: messages may have
// System.
func SetHub() { hub = true }

// SetInputs is called where a program handles inputs of a module.
func SetInputs() { inputs = true }
