package device_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// Flush waits only for earlier messages.
func TestFlushIsNotHeldByLaterMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(_ int, it transport.Item) error {
			if it.Msg.ID == "2" {
				return errHold
			}
			time.Sleep(time.Second)
			return nil
		}}
		c := opened(t, f, nil)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		done := async(func() error { return c.Flush(t.Context()) })
		synctest.Wait()
		require.NoError(t, c.Enqueue(t.Context(), msg(2), nil))
		time.Sleep(2 * time.Second)
		require.NotEmpty(t, done)
	})
}

// A waiting Flush ends when the client becomes Disconnected.
func TestFlushEndsWithDisconnected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: hold}
		c := opened(t, f, nil)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		done := async(func() error { return c.Flush(t.Context()) })
		synctest.Wait()
		f.lose(transport.Forbidden, 0)
		require.ErrorIs(t, <-done, transport.Forbidden)
	})
}
