//go:build tinygo

package linked

var results bool

// Results reports whether SetResults was called.
func Results() bool { return results }

// SetResults is called where a program watches the results of messages.
func SetResults() { results = true }
