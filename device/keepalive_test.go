package device_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The client pings a session with a KeepAlive.
func TestASessionWithAKeepAliveGetsPings(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{keepAlive: time.Minute}
		opened(t, f, nil)
		time.Sleep(10*time.Minute + time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		require.Len(t, f.pings, 10)
		for i, at := range f.pings {
			require.Equal(t, time.Duration(i+1)*time.Minute, at.Sub(f.dials[0]))
		}
	})
}
