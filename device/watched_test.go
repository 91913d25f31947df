package device_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// Each end of a message reaches the watcher, in the order of the ends, while the receipts' owners
// wait as usual.
func TestResultsOfWatchedMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(_ int, it transport.Item) error {
			switch it.Msg.ID {
			case "refused":
				return &transport.Error{Kind: transport.Invalid, Scope: transport.ScopeOperation, Op: transport.OpSend}
			case "held":
				return errHold
			}
			return nil
		}}
		c, _ := client(t, f, &device.Options{MaxMessages: 4, Overflow: device.OverflowDropOldest})
		results := device.NewResults()
		require.Nil(t, results.Next())
		receipts := map[string]*device.Receipt{}
		enqueue := func(id string, expires time.Time) {
			var r device.Receipt
			require.True(t, results.Watch(&r, &device.Watched{Value: id}))
			require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: id, Expires: expires}, &r))
			receipts[id] = &r
		}
		start := time.Now()
		enqueue("dropped", time.Time{})
		enqueue("expired", start.Add(time.Minute))
		enqueue("sent", time.Time{})
		enqueue("refused", time.Time{})
		enqueue("held", time.Time{})
		time.Sleep(2 * time.Minute)
		open(t, c)
		synctest.Wait()
		require.NoError(t, c.Close())

		select {
		case <-results.Ready():
		default:
			require.Fail(t, "no signal")
		}
		var got []string
		for w := results.Next(); w != nil; w = results.Next() {
			id := w.Value.(string)
			got = append(got, id)
			require.Equal(t, w.Err, receipts[id].Wait(t.Context()), "the receipt has the same result")
			switch id {
			case "dropped":
				require.Equal(t, start, w.At)
				require.ErrorIs(t, w.Err, transport.Dropped)
			case "expired":
				require.Equal(t, start.Add(time.Minute), w.At)
				require.ErrorIs(t, w.Err, transport.Expired)
			case "sent":
				require.NoError(t, w.Err)
			case "refused":
				require.ErrorIs(t, w.Err, transport.Invalid)
			case "held":
				require.ErrorIs(t, w.Err, transport.Closed)
				require.ErrorIs(t, w.Err, transport.ErrOutcomeUnknown)
			}
		}
		require.Equal(t, []string{"dropped", "expired", "sent", "refused", "held"}, got)
	})
}

// A receipt is watched for one message, and not while it has one.
func TestWatchingAReceiptForOneMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, nil)
		results := device.NewResults()
		var r device.Receipt
		var w device.Watched
		require.True(t, results.Watch(&r, &w))
		require.ErrorIs(t, c.Enqueue(t.Context(), nil, &r), transport.Invalid)
		results.Unwatch(&r)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &r))
		require.False(t, results.Watch(&r, &w), "it has a message")
		open(t, c)
		require.NoError(t, r.Wait(t.Context()))
		require.Nil(t, results.Next())

		for range 2 { // both may be reused
			require.True(t, results.Watch(&r, &w))
			require.NoError(t, c.Enqueue(t.Context(), msg(2), &r))
			require.NoError(t, r.Wait(t.Context()))
			require.Same(t, &w, results.Next())
			require.NoError(t, c.Enqueue(t.Context(), msg(3), &r))
			require.NoError(t, r.Wait(t.Context()))
			require.Nil(t, results.Next())
		}
	})
}
