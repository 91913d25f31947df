package device_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// Messages in flight are sent again first on the next connection, in order and marked; no
// message overtakes them.
func TestInFlightMessagesGoAgainInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{}
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

// The order of a stream survives many losses. On each connection the numbers only grow,
// and resent messages are marked.
func TestOrderSurvivesManyLosses(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(16, 16))
		f := &fake{verdict: func(int, transport.Item) error {
			if r.IntN(4) == 0 {
				return errHold
			}
			return nil
		}}
		c := opened(t, f, &device.Options{Window: 8, RetryPolicy: constant(time.Second), AckTimeout: 2 * time.Second})
		for i := 1; i <= 300; i++ {
			require.NoError(t, c.Enqueue(t.Context(), msg(i), nil))
		}
		require.NoError(t, c.Flush(t.Context()))
		newest, seen := map[int]int{}, map[string]bool{}
		for _, m := range f.received() {
			n, err := strconv.Atoi(m.id)
			require.NoError(t, err)
			require.Greater(t, n, newest[m.conn], "on connection %d", m.conn)
			newest[m.conn] = n
			require.Equal(t, seen[m.id], m.again, "message %s", m.id)
			seen[m.id] = true
		}
		require.Len(t, seen, 300)
		require.Greater(t, len(newest), 10, "there were many losses")
	})
}
