//go:build tinygo

package nexthub

import "errors"

// systemRandom fails: package crypto/rand panics on boards without a source of random numbers.
func systemRandom([]byte) error { return errors.New("a board has no source that is known here") }
