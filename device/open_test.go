package device_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// An Open whose run failed reports that failure, even if Start has been called again meanwhile.
func TestOpenReportsTheEndOfItsOwnRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		bad := 0
		for range 300 {
			var c *device.Client
			f := &fake{dial: func(n int, ctx context.Context) error {
				if n == 1 {
					return lost(transport.Unauthorized)
				}
				<-ctx.Done()
				return ctx.Err()
			}}
			again := make(chan struct{}, 1)
			c, err := device.New(creds(), f, &device.Options{OnStatus: func(s device.Status) {
				if s.State == device.StateDisconnected && s.Reason == device.ReasonNotRetryable {
					_ = c.Start() // an application that always starts again
					select {
					case again <- struct{}{}:
					default:
					}
				}
			}})
			require.NoError(t, err)
			err = c.Open(context.Background())
			if !errors.Is(err, transport.Unauthorized) {
				bad++
			}
			<-again
			_ = c.Close()
		}
		require.Zero(t, bad)
	})
}

// The end of one Open's context does not stop a client that other callers have started.
func TestAStartIsNotUndoneByAnotherCallersContext(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: down}
		c, _ := client(t, f, nil)
		ctx := within(t, 5*time.Second)
		a, b := make(chan error, 1), make(chan error, 1)
		go func() { a <- c.Open(ctx) }()
		synctest.Wait()
		require.NoError(t, c.Start())
		go func() { b <- c.Open(context.Background()) }()
		require.ErrorIs(t, <-a, transport.Cancelled)
		synctest.Wait()
		select {
		case err := <-b:
			t.Errorf("Open(Background) ended with %v (DeadlineExceeded: %v)", err, errors.Is(err, context.DeadlineExceeded))
		default:
		}
		require.NotEqual(t, device.StateDisconnected, c.Status().State, "Start returned nil and nothing tries")
	})
}

// A client whose retries ended can be opened again, with its queue.
func TestOpenAfterDisconnectedIsLegal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Network), lost(transport.Unauthorized))}
		c, _ := client(t, f, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		r := pending(t, c, msg(1))
		require.ErrorIs(t, c.Open(t.Context()), transport.RetryExpired)
		require.ErrorIs(t, c.Send(t.Context(), msg(2)), transport.RetryExpired, "a call fails at once with the reason")
		require.ErrorIs(t, c.Flush(t.Context()), transport.RetryExpired)
		require.ErrorIs(t, c.Open(t.Context()), transport.Unauthorized)
		require.Equal(t, 1, c.Stats().Queued)
		open(t, c)
		require.NoError(t, r.Wait(t.Context()))
		require.Equal(t, []string{"1"}, f.ids())
	})
}
