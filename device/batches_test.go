package device_test

import (
	"testing"
	"testing/synctest"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// A message is sent at once while the window has room. Once the window was full, messages are sent
// in batches of an eighth of the window, so a hub that answers one by one does not cause writes one
// by one. A small window is used at once.
func TestAFullWindowOpensByEighths(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var batches []int
		var tags []uint16
		f := &fake{verdict: func(_ int, it transport.Item) error {
			tags = append(tags, it.Tag)
			return errHold
		}}
		c := opened(t, f, &device.Options{Window: 32,
			Trace: &device.Trace{Sent: func(n int) { batches = append(batches, n) }}})
		enqueue := func(n int) {
			for i := range n {
				require.NoError(t, c.Enqueue(t.Context(), msg(i), nil))
				synctest.Wait()
			}
		}
		answer := func(n int) {
			answered := tags[:n:n]
			tags = tags[n:]
			for _, tag := range answered {
				f.last().cfg.Sink.Done(tag, nil)
			}
			synctest.Wait()
		}

		enqueue(32)
		require.Len(t, batches, 32)

		batches = nil
		for range 3 {
			answer(1)
			enqueue(1)
		}
		require.Empty(t, batches, "29 are in flight")
		answer(1)
		require.Equal(t, []int{3}, batches, "28 were")
		enqueue(1)
		require.Equal(t, []int{3, 1}, batches, "there was room")

		answer(4) // no message waits
		batches = nil
		enqueue(2)
		require.Equal(t, []int{1, 1}, batches)

		answer(2)
		enqueue(4)
		require.Equal(t, 32, c.Stats().InFlight)
		answer(32)
		batches = nil
		enqueue(1)
		require.Equal(t, []int{1}, batches, "the window was full, and is empty")
	})
}
