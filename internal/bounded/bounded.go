// Package bounded runs tests in fake time (testing/synctest) and names a test that does not end.
//
// A test in fake time ends by itself when all its goroutines wait: synctest reports that as a
// deadlock. It does not end when a goroutine waits for a mutex, when something spins, or when
// timers go on for ever; then go test alone would end it, after ten minutes, without the test's
// name.
package bounded

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

// limit is how much real time a test in fake time may take. Such tests take seconds, on a busy
// machine with the race detector a minute. The package's test shortens it.
var limit = 4 * time.Minute

// spare is what is left of the time of go test when a bubble is ended because of that.
const spare = 5 * time.Second

// Test is synctest.Test with a limit on real time. The process ends with the stacks of all
// goroutines when f is still running then.
func Test(t *testing.T, f func(t *testing.T)) {
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

// Goroutines returns how many goroutines the caller's bubble has. runtime.NumGoroutine counts those
// of other tests that are about to end as well.
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
