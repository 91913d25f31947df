package device_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// A hub that acknowledges a message twice does not acknowledge the next one, because tags are
// reused as late as possible.
func TestAnAcknowledgementThatComesTwiceDoesNotHitTheNextMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var tags []uint16
		f := &fake{}
		f.verdict = func(_ int, it transport.Item) error {
			tags = append(tags, it.Tag)
			if len(tags) > 4 {
				return errHold
			}
			return nil
		}
		c, _ := client(t, f, nil)
		var receipts [5]device.Receipt
		for i := range 4 { // four slots
			require.NoError(t, c.Enqueue(t.Context(), msg(i), &receipts[i]))
		}
		open(t, c)
		for i := range 4 {
			require.NoError(t, receipts[i].Wait(t.Context()))
		}
		require.NoError(t, c.Enqueue(t.Context(), msg(4), &receipts[4]))
		synctest.Wait()
		f.last().cfg.Sink.Done(tags[3], nil) // again
		require.Equal(t, 1, c.Stats().InFlight)
		f.last().cfg.Sink.Done(tags[4], nil)
		require.NoError(t, receipts[4].Wait(t.Context()))
		require.EqualValues(t, 5, c.Stats().Acknowledged)
	})
}

// With a done context, Wait polls.
func TestWaitPrefersAResultThatIsThere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, nil)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		var r device.Receipt
		for i := range 100 {
			require.NoError(t, c.Enqueue(t.Context(), msg(i), &r))
			if i == 0 {
				require.ErrorIs(t, r.Wait(over), context.Canceled)
				open(t, c)
			}
			synctest.Wait()
			require.NoError(t, r.Wait(over))
		}
	})
}
