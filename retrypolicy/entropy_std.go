//go:build !tinygo

package retrypolicy

import "math/rand/v2"

// entropy is a seed that no two calls of Do share.
func entropy() uint64 { return rand.Uint64() }
