package hub

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/notices"
)

// A timer of a queue that fired before a reset, and runs after it, has no effect.
func TestResetStopsQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := New(nil)
		require.NoError(t, err)
		defer h.Close()
		_, err = h.AddDevice("dev-1")
		require.NoError(t, err)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "full", Expiry: time.Now().Add(time.Minute)}))
		q := h.PresentQueue(identity.Identity{Device: "dev-1"}, Commands)
		h.Reset()
		time.Sleep(time.Minute)
		q.tick()
		q.Purge()
		_, ok := h.Notices(notices.Feedback).Pull()
		require.False(t, ok)
		require.False(t, q.timer.Stop(), "the timer is not set")
	})
}

// A Reset waits for delayed work that has begun, which would change the new state otherwise.
func TestResetWaitsForDelayedWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := New(nil)
		require.NoError(t, err)
		defer h.Close()
		begun, release := make(chan struct{}), make(chan struct{})
		h.Later(time.Second, nil, func() {
			close(begun)
			<-release
			h.Store(hubdata.Message{DeviceID: "dev-1"})
		})
		<-begun
		reset := make(chan struct{})
		go func() { h.Reset(); close(reset) }()
		synctest.Wait()
		h.Later(0, nil, func() { h.Store(hubdata.Message{DeviceID: "dev-2"}) })
		synctest.Wait()
		close(release)
		<-reset
		synctest.Wait()
		require.Empty(t, h.Telemetry.Messages())
	})
}
