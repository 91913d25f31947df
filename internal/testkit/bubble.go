// Package testkit is what tests of many packages share: bubbles of fake time that name a test that
// hangs, their clock, options with durations that are too long, a name with several addresses, and
// a TPM in software. It imports nothing of the client or the hub, so that every package can use it.
package testkit

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// limit is the most real time for a test in fake time. Such tests take seconds, or a minute on a
// busy machine with the race detector. The package's test shortens it.
var limit = 4 * time.Minute

// spare is the time before go test's own deadline at which Bubble ends a bubble.
const spare = 5 * time.Second

// Run is t.Run with a Bubble.
func Run(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { Bubble(t, f) })
}

// In2030 is a Bubble after StartClock.
func In2030(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	Bubble(t, func(t *testing.T) {
		StartClock()
		f(t)
	})
}

// Bubble is synctest.Test with a limit on real time. If f still runs then, the process ends with
// the stacks of all goroutines.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	most := limit
	if end, ok := t.Deadline(); ok {
		most = min(most, max(time.Until(end)-spare, time.Second))
	}
	late := time.AfterFunc(most, func() {
		expired(fmt.Sprintf("%s is still running after %v: a goroutine spins, waits for a mutex, or timers go on for ever",
			t.Name(), most.Round(time.Millisecond)))
	})
	defer late.Stop()
	synctest.Test(t, f)
}

// Goroutines returns the number of goroutines in the caller's bubble. runtime.NumGoroutine also
// counts goroutines of other tests that are about to end and, while the garbage collector marks its
// roots, all that have ended.
func Goroutines() int {
	own := make([]byte, 200)
	own = own[:runtime.Stack(own, false)]
	_, bubble, ok := strings.Cut(string(own), "synctest ")
	if !ok {
		return 0
	}
	bubble, _, _ = strings.Cut(bubble, "]")
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	return strings.Count(string(all), "synctest "+bubble+"]:")
}

// expired ends the process. The package's test replaces it.
var expired = func(why string) {
	debug.SetTraceback("all")
	fmt.Fprintf(os.Stderr, "--- FAIL: %s\n", why)
	panic(why)
}
