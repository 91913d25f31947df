package testkit

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestATestInFakeTimeRuns(t *testing.T) {
	ran := false
	Bubble(t, func(t *testing.T) {
		begun := time.Now()
		time.Sleep(24 * time.Hour)
		require.Equal(t, 24*time.Hour, time.Since(begun))
		ran = true
	})
	require.True(t, ran)
}

func TestGoroutinesAreThoseOfTheBubble(t *testing.T) {
	other := make(chan struct{})
	go func() { <-other }()
	defer close(other)
	require.Zero(t, Goroutines())
	Bubble(t, func(t *testing.T) {
		before := Goroutines()
		end := make(chan struct{})
		for range 3 {
			go func() { <-end }()
		}
		synctest.Wait()
		require.Equal(t, before+3, Goroutines())
		close(end)
		synctest.Wait()
		require.Equal(t, before, Goroutines())
	})
}

// A goroutine that waits for a mutex stops the fake clock, so no timer in the bubble can end the
// test.
func TestATestThatHangsIsNamed(t *testing.T) {
	if end, ok := t.Deadline(); ok && time.Until(end) < time.Minute {
		t.Skip("the limit would be that of go test")
	}
	before, limitBefore := expired, limit
	t.Cleanup(func() { expired, limit = before, limitBefore })
	limit = 50 * time.Millisecond
	var mu sync.Mutex
	held, release := make(chan struct{}), make(chan struct{})
	go func() {
		mu.Lock()
		defer mu.Unlock()
		close(held)
		<-release
	}()
	<-held
	said := make(chan string, 1)
	expired = func(why string) {
		said <- why
		close(release)
	}
	Bubble(t, func(*testing.T) {
		mu.Lock()
		defer mu.Unlock()
	})
	require.Contains(t, <-said, "TestATestThatHangsIsNamed is still running after 50ms")
}
