package device_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
)

func TestAReceiptIsReadyOnceItsResultIsThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var r device.Receipt
		require.False(t, r.Ready(), "no message")
		c, _ := client(t, &fake{}, nil)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &r))
		require.False(t, r.Ready())
		open(t, c)
		time.Sleep(time.Second)
		require.True(t, r.Ready())
		require.NoError(t, r.Wait(t.Context()))
		require.False(t, r.Ready(), "taken")
	})
}
