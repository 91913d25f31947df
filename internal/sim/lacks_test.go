package sim_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

func TestMethodsAndTwinsAreRefusedAtTheCallWhereThereAreNone(t *testing.T) {
	withEachEngine(t, func(t *testing.T, e engine) {
		if e.twins {
			return
		}
		testkit.In2030(t, func(t *testing.T) {
			hub, creds := e.openHub(t)
			tr := e.make(creds, e.inMemory(hub, false))
			if _, ok := tr.(transport.Limited); !ok {
				t.Skip("SKIPPED: this transport learns it only from its session")
			}
			c, err := device.New(creds, tr, nil)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Open(t.Context()))
			err = c.HandleMethod("reboot", func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil })
			require.ErrorIs(t, err, transport.Unsupported)
			require.ErrorContains(t, err, "direct methods are not available")
			_, err = c.GetTwin(t.Context())
			require.ErrorContains(t, err, "device twins are not available")
			time.Sleep(time.Minute)
			require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
			require.EqualValues(t, 1, c.Stats().Connections)
		})
	})
}
