package fleet

import (
	"time"

	"github.com/hubline-iot/hubline/internal/reconnect"
)

// dials is the limiter of a process, device.DialLimiter in simulated time. Its turns are those of
// the client.
type dials struct {
	free  int
	turns reconnect.Turns
	queue []int32 // devices without a slot, in order
}

// enter takes a slot for device i. Without one the device is queued.
func (l *dials) enter(i int32) bool {
	if l.free == 0 {
		l.queue = append(l.queue, i)
		return false
	}
	l.free--
	return true
}

// turn returns when the holder of a slot may begin.
func (l *dials) turn(t int64) int64 { return int64(l.turns.Take(instant(t)).Sub(epoch)) }

// leave gives a slot back. If a device waits for it, the device has it.
func (l *dials) leave() (next int32, ok bool) {
	if len(l.queue) == 0 {
		l.free++
		return 0, false
	}
	next, l.queue = l.queue[0], l.queue[1:]
	return next, true
}

// epoch is the beginning of simulated time: midnight, as in testing/synctest.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func instant(t int64) time.Time { return epoch.Add(time.Duration(t)) }
