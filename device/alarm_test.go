package device

import (
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
)

// Timers of boards are rounded down to a tick, so they may fire early. The loop then finds nothing
// to do, and must arm its timer again.
func TestATimerThatIsEarly(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		for _, early := range []time.Duration{20 * time.Millisecond, 10 * time.Microsecond} {
			woken := make(chan struct{}, 1)
			timer := loopTimer{poke: func() { woken <- struct{}{} }}
			at := time.Now().Add(50 * time.Millisecond)
			timer.arm(time.Now(), at)
			timer.timer.Reset(time.Until(at) - early)
			<-woken
			timer.arm(time.Now(), at)
			select {
			case <-woken:
			case <-time.After(time.Second):
				t.Fatal("the loop sleeps for ever")
			}
			if late := time.Since(at); late < 0 || late > time.Millisecond {
				t.Errorf("woken %v late", late)
			}
		}
	})
}
