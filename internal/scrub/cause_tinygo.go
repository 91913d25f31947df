//go:build tinygo

package scrub

// Cause returns err: a search for secrets takes too much flash.
func Cause(err error) error { return err }
