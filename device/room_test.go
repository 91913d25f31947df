package device_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// OperationTimeout limits a Send, also while the queue is full.
func TestASendWaitingForRoomIsBoundedByOperationTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := started(t, &fake{dial: down}, &device.Options{MaxMessages: 1, OperationTimeout: time.Minute})
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		done := async(func() error { return c.Send(context.Background(), msg(2)) })
		time.Sleep(time.Hour)
		require.NotEmpty(t, done, "Send still blocked after 1 h with OperationTimeout 1 min")
	})
}

// A Send that waits for room ends when the client becomes Disconnected.
func TestASendWaitingForRoomReportsDisconnected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: hold}
		c := opened(t, f, &device.Options{MaxMessages: 1})
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		done := async(func() error { return c.Send(context.Background(), msg(2)) })
		synctest.Wait()
		f.lose(transport.Forbidden, time.Hour)
		require.Equal(t, device.StateDisconnected, c.Status().State)
		require.NotEmpty(t, done, "Send still blocked 1 h after Disconnected")
	})
}

// Callers that wait for room sleep until there is some, even if one of them gives up.
func TestCallersBlockedByBytesDoNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, &device.Options{MaxBytes: 100})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		require.NoError(t, c.Enqueue(ctx, sized("1", 80), nil))
		counting := &countingCtx{Context: ctx}
		for range 32 {
			go func() { _ = c.Enqueue(counting, sized("2", 50), nil) }()
		}
		ctx3, cancel3 := context.WithCancel(ctx)
		go func() { _ = c.Enqueue(ctx3, sized("3", 50), nil) }()
		synctest.Wait()
		before := counting.n.Load()
		cancel3() // gives up: no room was made
		time.Sleep(time.Second)
		require.Equal(t, before, counting.n.Load(), "wake-ups without any room")
		cancel()
		synctest.Wait()
	})
}

// countingCtx counts the waits on it.
type countingCtx struct {
	context.Context
	n atomic.Int64
}

func (c *countingCtx) Done() <-chan struct{} { c.n.Add(1); return c.Context.Done() }

// OverflowDropOldest drops nothing if that cannot make enough room.
func TestDropOldestDropsNothingInVain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: hold}
		c := opened(t, f, &device.Options{MaxBytes: 100, Overflow: device.OverflowDropOldest, Window: 1})
		var rs [3]device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), sized("1", 80), &rs[0]))
		synctest.Wait()
		require.NoError(t, c.Enqueue(t.Context(), sized("2", 20), &rs[1]))
		require.NoError(t, c.Enqueue(t.Context(), sized("3", 30), &rs[2])) // cannot fit beside the one in flight
		require.Equal(t, uint64(1), c.Stats().Dropped, "both the old and the new message were dropped")
	})
}

// A message refused for now is not in flight, so OverflowDropOldest may drop it.
func TestDropOldestTakesRefusedMessagesToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: refuse(transport.Unavailable)}
		c := opened(t, f, &device.Options{MaxMessages: 2, Overflow: device.OverflowDropOldest, Window: 1,
			RetryPolicy: constant(time.Hour)})
		var rs [3]device.Receipt
		for i := range rs {
			require.NoError(t, c.Enqueue(t.Context(), msg(i), &rs[i]))
			synctest.Wait()
		}
		ctx := within(t, time.Second)
		require.ErrorIs(t, rs[0].Wait(ctx), transport.Dropped, "oldest not in flight")
	})
}
