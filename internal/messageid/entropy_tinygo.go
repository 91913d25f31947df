//go:build tinygo

package messageid

// entropy returns 0: a board may have no entropy source, and a number that repeats after each start
// would give different messages the same id.
func entropy() uint64 { return 0 }
