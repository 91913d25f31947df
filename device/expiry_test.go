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
	kill := func(k transport.Kind) func(f *fake) { return func(f *fake) { f.last().kill <- lost(k) } }
	refuse := func(f *fake) { f.last().cfg.Sink.Done(0, refused(transport.Unavailable)) }
	for _, tc := range []struct {
		name   string
		flight time.Duration // how long it is in flight
		end    func(f *fake)
	}{
		{"disconnected", 0, kill(transport.NotFound)},
		{"lost before it expires", 0, kill(transport.Network)},
		{"lost later", 2 * life, kill(transport.Network)},
		{"refused before it expires", 0, refuse},
		{"refused later", 2 * life, refuse},
	} {
		run(t, tc.name, func(t *testing.T) {
			f := &fake{verdict: hold, dial: upOnce}
			c := opened(t, f, &device.Options{AckTimeout: time.Hour, RetryPolicy: constant(24 * time.Hour)})
			m := msg(1)
			m.Expires = time.Now().Add(life)
			start := time.Now()
			r := pending(t, c, m)
			time.Sleep(tc.flight)
			synctest.Wait()
			require.False(t, r.Ready(), "in flight it does not expire")
			tc.end(f)
			require.ErrorIs(t, r.Wait(within(t, time.Hour)), transport.Expired)
			require.Equal(t, max(life, tc.flight), time.Since(start))
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
	withFake(t, func(t *testing.T, f *fake) {
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
