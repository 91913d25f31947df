package device_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// All calls report the end of their context in the same way.
func TestACallWhoseContextEndsSaysSo(t *testing.T) {
	shutdown := errors.New("shutting down")
	var held device.Receipt
	calls := map[string]func(ctx context.Context, c *device.Client) error{
		"Send":    func(ctx context.Context, c *device.Client) error { return c.Send(ctx, msg(1)) },
		"Enqueue": func(ctx context.Context, c *device.Client) error { return c.Enqueue(ctx, msg(2), nil) },
		"Flush":   func(ctx context.Context, c *device.Client) error { return c.Flush(ctx) },
		"Receipt": func(ctx context.Context, _ *device.Client) error { return held.Wait(ctx) },
		"Open":    func(ctx context.Context, c *device.Client) error { return c.Open(ctx) },
		"GetTwin": func(ctx context.Context, c *device.Client) error {
			_, err := c.GetTwin(ctx)
			return err
		},
	}
	for name, call := range calls {
		run(t, name, func(t *testing.T) {
			held = device.Receipt{}
			f := &fake{dial: down}
			c := started(t, f, &device.Options{MaxMessages: 1})
			require.NoError(t, c.Enqueue(t.Context(), msg(0), &held))

			ctx, cancel := context.WithCancelCause(t.Context())
			result := async(func() error { return call(ctx, c) })
			synctest.Wait()
			cancel(shutdown)
			err := <-result
			require.ErrorIs(t, err, transport.Cancelled)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, shutdown)
			require.False(t, errfilter.Retryable(err), "%v", err)

			ctx, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			err = call(ctx, c)
			require.ErrorIs(t, err, transport.Cancelled)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.False(t, errfilter.Retryable(err), "%v", err)
		})
	}
}

func TestCloseNamesEveryStepThatDidNotEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		f := &fake{dial: func(int, context.Context) error { <-release; return lost(transport.Network) }}
		c, _ := client(t, f, &device.Options{CloseTimeout: 3 * time.Second,
			OnStatus: func(device.Status) { <-release }})
		require.NoError(t, c.Start())
		synctest.Wait()
		start := time.Now()
		err := c.Close()
		require.Equal(t, 6*time.Second, time.Since(start), "CloseTimeout for each")
		require.ErrorIs(t, err, transport.Timeout)
		require.ErrorContains(t, err, "the transport did not end")
		require.ErrorContains(t, err, "OnStatus did not return within CloseTimeout; if it calls Close, do so in another "+
			"goroutine")
		close(release)
	})
}

// A dial function or a token source may end its own context; the client's context is alive.
func TestTheEndOfAnotherContextIsATimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(
			&transport.Error{Kind: transport.Timeout, Scope: transport.ScopeConnection,
				Err: errors.Join(os.ErrDeadlineExceeded, context.Canceled)},
			lost(transport.Cancelled),
		)}
		c, _ := client(t, f, nil)
		require.NoError(t, c.Open(t.Context()))
		require.EqualValues(t, 3, c.Stats().Attempts)
		f.lose(transport.Cancelled, 0)
		require.NotEqual(t, device.StateDisconnected, c.Status().State)
	})
}

// An Open that gave up does not pass its context's end on to other calls.
func TestOtherCallsDoNotFailWithTheContextOfOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: down}
		c, _ := client(t, f, nil)
		ctx := within(t, time.Second)
		require.ErrorIs(t, c.Open(ctx), transport.Cancelled)
		err := c.Send(t.Context(), msg(1))
		require.ErrorIs(t, err, transport.Timeout)
		require.NotErrorIs(t, err, transport.Cancelled)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
	})
}
