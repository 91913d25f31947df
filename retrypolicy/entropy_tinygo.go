//go:build tinygo

package retrypolicy

import "time"

// entropy is a seed for a board without a source of random numbers: its clock. Who has better gives
// Retrier.Rand.
func entropy() uint64 { return uint64(time.Now().UnixNano()) }
