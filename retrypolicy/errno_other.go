//go:build tinygo || (!unix && !windows)

package retrypolicy

// lostConnection reports nothing: the error numbers of this system are unknown.
func lostConnection(error) (made, ok bool) { return false, false }
