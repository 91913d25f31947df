//go:build tinygo && baremetal

package board

import (
	"runtime"
	"time"
)

// stacksAreSmall reports whether new goroutines get less stack than the client needs. TinyGo takes
// a goroutine's stack from the heap, so it counts what a goroutine takes. That goroutine calls
// through a pointer: TinyGo cannot compute its depth, and gives it the default size, like those of
// the client. If it could, the stack would be smaller than leastDefault, which tells nothing.
func stacksAreSmall(now func() time.Time) bool {
	const leastDefault = 1 << 10
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before := m.TotalAlloc
	go call(now)
	runtime.ReadMemStats(&m)
	size := uint32(m.TotalAlloc - before)
	return size > leastDefault && size < StackSize
}

func call(now func() time.Time) { now() }
