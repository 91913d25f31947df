package transporttest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/testkit"
)

// Checks returns the names of all checks.
func Checks() (names []string) {
	for _, c := range checks {
		names = append(names, c.name)
	}
	return names
}

// Examine runs one check and returns its failures.
func Examine(t *testing.T, name string, newPair func(testing.TB) *Pair) []string {
	i := slices.Index(Checks(), name)
	if i < 0 {
		t.Fatalf("there is no check %q", name)
	}
	r := &recorder{TB: t}
	testkit.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		r.ctx = ctx
		r.do(func() { checks[i].check(&probe{TB: r, Pair: newPair(r)}) })
		cancel()
		for i := len(r.cleanups) - 1; i >= 0; i-- {
			r.do(r.cleanups[i])
		}
		time.Sleep(24 * time.Hour) // goroutines that a fault leaked end by themselves
	})
	return r.failures
}

// recorder is a testing.TB that records failures.
type recorder struct {
	testing.TB
	ctx      context.Context
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

// do calls f, which may end its goroutine by FailNow.
func (r *recorder) do(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (r *recorder) fail(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, text)
}

func (r *recorder) Helper()                           {}
func (r *recorder) Context() context.Context          { return r.ctx }
func (r *recorder) Cleanup(f func())                  { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Errorf(format string, args ...any) { r.fail(fmt.Sprintf(format, args...)) }
func (r *recorder) Error(args ...any)                 { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Fatalf(format string, args ...any) {
	r.fail(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
func (r *recorder) Skip(...any) { runtime.Goexit() }
