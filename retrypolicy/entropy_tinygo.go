//go:build tinygo

package retrypolicy

import "time"

// entropy returns the clock as a seed, for a board without a source of random numbers. A program
// with a better source sets Retrier.Rand.
func entropy() uint64 { return uint64(time.Now().UnixNano()) }
