package device_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// Messages in flight are sent again first on the next connection, in order and marked; no
// message overtakes them.
func TestInFlightMessagesGoAgainInOrder(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.verdict = func(conn int, it transport.Item) error {
			if conn == 1 && it.Msg.ID != "3" { // 3 is acknowledged out of order
				return errHold
			}
			return nil
		}
		c, _ := client(t, f, &device.Options{Window: 5})
		var rs [9]device.Receipt
		for i := range rs {
			require.NoError(t, c.Enqueue(t.Context(), msg(i+1), &rs[i]))
		}
		open(t, c) // five are sent at once
		synctest.Wait()
		f.last().kill <- lost(transport.Network)
		for i := range rs {
			require.NoError(t, rs[i].Wait(t.Context()))
		}
		var second []received
		for _, r := range f.received() {
			if r.conn == 2 {
				second = append(second, r)
			}
		}
		sixth := slices.Contains(f.received(), received{1, "6", false}) // it may have taken the slot of 3
		want := []received{{2, "1", true}, {2, "2", true}, {2, "4", true}, {2, "5", true}, {2, "6", sixth}, {2, "7", false},
			{2,
				"8", false}, {2, "9", false}}
		require.Equal(t, want, second)
	})
}
