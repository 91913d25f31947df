//go:build !tinygo

package messageid

import "hash/maphash"

// entropy returns a random number from the runtime.
func entropy() uint64 { return maphash.String(maphash.MakeSeed(), "") | 1<<63 }
