//go:build !tinygo

package retrypolicy

import "math/rand/v2"

// entropy returns a seed for one call of Do.
func entropy() uint64 { return rand.Uint64() }
