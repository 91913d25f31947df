package device_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// A message expires at its time in every waiting state: while the client is Disconnected, after the
// loss of its session, after a refusal for now. In flight it does not expire.
func TestAMessageExpiresHoweverItWaits(t *testing.T) {
	const life = time.Minute
	for _, tc := range []struct {
		name   string
		after  time.Duration // from acceptance to the result
		happen func(t *testing.T, f *fake, c *device.Client)
	}{
		{"disconnected", life, func(t *testing.T, f *fake, c *device.Client) {
			f.lose(transport.NotFound, 0)
			require.Equal(t, device.StateDisconnected, c.Status().State)
		}},
		{"lost before it expires", life, func(_ *testing.T, f *fake, _ *device.Client) {
			f.last().kill <- lost(transport.Network)
		}},
		{"lost later", 2 * life, func(_ *testing.T, f *fake, _ *device.Client) {
			time.Sleep(2 * life)
			f.last().kill <- lost(transport.Network)
		}},
		{"refused before it expires", life, func(_ *testing.T, f *fake, _ *device.Client) {
			f.last().cfg.Sink.Done(0, refused(transport.Unavailable))
		}},
		{"refused later", 2 * life, func(_ *testing.T, f *fake, _ *device.Client) {
			time.Sleep(2 * life)
			f.last().cfg.Sink.Done(0, refused(transport.Unavailable))
		}},
	} {
		run(t, tc.name, func(t *testing.T) {
			f := &fake{verdict: hold}
			f.dial = upOnce
			c := opened(t, f, &device.Options{AckTimeout: time.Hour, RetryPolicy: constant(24 * time.Hour)})
			m := msg(1)
			m.Expires = time.Now().Add(life)
			var r device.Receipt
			start := time.Now()
			require.NoError(t, c.Enqueue(t.Context(), m, &r))
			synctest.Wait()
			tc.happen(t, f, c)
			ctx := within(t, time.Hour)
			require.ErrorIs(t, r.Wait(ctx), transport.Expired)
			require.Equal(t, tc.after, time.Since(start))
		})
	}
}

// Messages expire also while no loop runs.
func TestMessagesExpireWhileTheClientIsNotOpen(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, nil)
		m := msg(1)
		m.Expires = time.Now().Add(time.Second)
		r := pending(t, c, m)
		ctx := within(t, time.Hour)
		require.ErrorIs(t, r.Wait(ctx), transport.Expired)
	})
}

// When the first queued message is removed, messages behind it that are in flight are not handed
// over again.
func TestAnExpiredFirstMessageDoesNotResendThoseInFlight(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{}
		n := 0
		f.verdict = func(_ int, it transport.Item) error {
			if it.Msg.ID == "1" {
				if n++; n == 1 {
					return refused(transport.Unavailable)
				}
			}
			return errHold
		}
		c := opened(t, f, &device.Options{RetryPolicy: constant(10 * time.Second), Window: 2, AckTimeout: time.Hour})
		m := msg(1)
		m.Expires = time.Now().Add(10 * time.Second) // expires at the very moment of the resend
		require.NoError(t, c.Enqueue(t.Context(), m, nil))
		require.NoError(t, c.Enqueue(t.Context(), msg(2), nil))
		require.NoError(t, c.Enqueue(t.Context(), msg(3), nil))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, []string{"1", "2", "3"}, f.ids())
	})
}
