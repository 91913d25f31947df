package device_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// No Send blocks for ever. A silent hub is detected by the missing answer; the context or
// OperationTimeout also ends it.
func TestEverySendEnds(t *testing.T) {
	t.Run("the session says how long answers take, unless the program does", func(t *testing.T) {
		for _, row := range []struct{ option, session, want time.Duration }{
			{0, 0, 30 * time.Second}, {0, 2 * time.Minute, 2 * time.Minute}, {0, time.Second, 30 * time.Second},
			{20 * time.Second, 2 * time.Minute, 20 * time.Second}, {30 * time.Second, 2 * time.Minute, 30 * time.Second},
			{time.Minute, time.Second, time.Minute},
		} {
			bubble(t, func(t *testing.T) {
				f := &fake{ackTimeout: row.session, verdict: holdFirst}
				c := opened(t, f, &device.Options{AckTimeout: row.option})
				start := time.Now()
				require.NoError(t, c.Send(t.Context(), msg(1)))
				require.Equal(t, row.want+100*ms, time.Since(start), row)
			})
		}
	})
	run(t, "the oldest message counts, not the latest", func(t *testing.T) {
		f := &fake{verdict: func(conn int, it transport.Item) error {
			if conn == 1 && it.Msg.ID == "1" {
				return errHold
			}
			return nil
		}}
		c := opened(t, f, &device.Options{AckTimeout: 20 * time.Second})
		start := time.Now()
		r := pending(t, c, msg(1))
		for range 15 {
			time.Sleep(time.Second)
			require.NoError(t, c.Send(t.Context(), msg(2)))
		}
		require.NoError(t, r.Wait(t.Context()))
		require.Equal(t, 20*time.Second+100*ms, time.Since(start))
	})
}

// A Send ends with its context, its time-out, or the client.
func TestASendEndsWithItsContextItsTimeOutOrTheClient(t *testing.T) {
	run(t, "context, message still queued: withdrawn", func(t *testing.T) {
		f := &fake{dial: down}
		c := started(t, f, nil)
		ctx := within(t, 3*time.Second)
		err := c.Send(ctx, msg(1))
		require.ErrorIs(t, err, transport.Cancelled)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.ErrorIs(t, err, transport.Network, "what stood in the way is told")
		require.Zero(t, c.Stats().Queued)
	})
	run(t, "operation time-out", func(t *testing.T) {
		f := &fake{dial: down}
		c := started(t, f, nil)
		start := time.Now()
		require.ErrorIs(t, c.Send(t.Context(), msg(1)), transport.Timeout)
		require.Equal(t, 4*time.Minute, time.Since(start))
	})
	run(t, "a client that was not opened says so", func(t *testing.T) {
		c, _ := client(t, &fake{}, nil)
		require.ErrorIs(t, c.Send(t.Context(), msg(1)), transport.Closed)
	})
}

// Each accepted message gets exactly one result, whatever happens. A second result would
// block the sender of the result for ever, a missing one the waiter; both show as a stalled bubble.
func TestEachMessageGetsExactlyOneResult(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			bubble(t, func(t *testing.T) { oneResultEach(t, seed) })
		})
	}
}

func oneResultEach(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 9))
	draw := rand.New(rand.NewPCG(seed, 10)) // for the session's goroutine
	f := &fake{dial: func(n int, _ context.Context) error {
		if n%3 == 0 {
			return lost(transport.Network)
		}
		return nil
	}}
	f.verdict = func(int, transport.Item) error {
		switch draw.IntN(10) {
		case 0:
			return errHold
		case 1:
			return refused(transport.Unavailable)
		case 2:
			return refused(transport.Invalid)
		}
		return nil
	}
	o := &device.Options{
		RetryPolicy: constant(time.Second), Window: 1 + rnd.IntN(20), MaxMessages: 20 + rnd.IntN(100),
		AckTimeout: 5 * time.Second,
		Overflow:   device.Overflow(rnd.IntN(4)),
	}
	c := opened(t, f, o)

	const n = 400
	var rs [n]device.Receipt
	accepted := 0
	var taken [n]bool
	for i := range rs {
		m := msg(i)
		if rnd.IntN(4) == 0 {
			m.Expires = time.Now().Add(time.Duration(rnd.IntN(10_000)) * ms)
		}
		err := c.Enqueue(t.Context(), m, &rs[i])
		if err == nil {
			accepted++
			taken[i] = true
		} else {
			require.True(t, errors.Is(err, transport.Dropped) || errors.Is(err, transport.Expired), "%v", err)
		}
		switch rnd.IntN(40) {
		case 0:
			time.Sleep(time.Duration(rnd.IntN(3000)) * ms)
		case 1:
			if c.Status().State == device.StateConnected {
				select {
				case f.last().kill <- lost(transport.Network):
				default:
				}
			}
		case 2:
			require.NoError(t, c.Reconnect())
		}
	}
	if rnd.IntN(2) == 0 {
		require.NoError(t, c.Flush(t.Context()))
		require.Zero(t, c.Stats().Queued)
	} else {
		require.NoError(t, c.Close())
	}
	acked, other := 0, 0
	for i := range rs {
		if !taken[i] {
			continue
		}
		if err := rs[i].Wait(t.Context()); err == nil {
			acked++
		} else {
			other++
		}
		require.ErrorIs(t, rs[i].Wait(t.Context()), transport.Invalid, "one result, no second")
	}
	require.Equal(t, accepted, acked+other)
	s := c.Stats()
	require.Equal(t, uint64(accepted), s.Accepted)
	require.Equal(t, uint64(acked), s.Acknowledged)
	require.Equal(t, uint64(other), s.Refused+s.Expired+s.Dropped+s.Cancelled, "%+v", s)
}
