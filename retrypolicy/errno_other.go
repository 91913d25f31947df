//go:build tinygo || (!unix && !windows)

package retrypolicy

// lostConnection knows no numbers of this system: a board's dial function reports a
// *transport.Error.
func lostConnection(error) (made, ok bool) { return false, false }
