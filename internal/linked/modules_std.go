//go:build !tinygo

package linked

// Hub reports whether SetHub was called, and Inputs whether SetInputs was, on boards. Elsewhere
// both are true.
func Hub() bool    { return true }
func Inputs() bool { return true }

// SetHub is called where a program chooses the dialect of a hub that has all: messages may have
// System.
func SetHub() {}

// SetInputs is called where a program handles inputs of a module.
func SetInputs() {}
