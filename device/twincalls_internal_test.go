package device

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

// refusing is a transport whose peer refuses the device.
type refusing struct{}

func (refusing) Dial(context.Context, *transport.Config) (transport.Session, error) {
	return nil, &transport.Error{Kind: transport.Unauthorized, Op: transport.OpDial}
}

// Calls that give up while nothing connects leave nothing behind.
func TestCallsThatGiveUpDuringALongWaitAreForgotten(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		c, err := New(&transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}, refusing{},
			&Options{TryAgainAfter: 24 * time.Hour})
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		require.NoError(t, c.Start())
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := c.PatchReported(ctx, []byte(`{"a":1}`))
			require.ErrorIs(t, err, transport.Cancelled)
			cancel()
		}
		c.twin.mu.Lock()
		defer c.twin.mu.Unlock()
		require.Empty(t, c.twin.calls)
		require.Empty(t, c.twin.finished)
	})
}
