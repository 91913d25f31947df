package device_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// A session that supports it renews its token in place, repeatedly, without a disconnect.
func TestRenewalInPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{expires: func() time.Time { return time.Now().Add(100 * time.Second) }}
		var at []time.Duration
		start := time.Now()
		f.request = func(_ *fakeSession, r *transport.Request) (transport.Reply, bool) {
			require.Equal(t, transport.OpRenew, r.Op)
			at = append(at, time.Since(start))
			return transport.Reply{Expires: time.Now().Add(200 * time.Second)}, true
		}
		var told []time.Duration
		c, w := client(t, f, &device.Options{Trace: &device.Trace{Renewed: func(expires time.Time, err error) {
			require.NoError(t, err)
			told = append(told, time.Until(expires))
		}}})
		open(t, c)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{85 * time.Second, 255 * time.Second, 425 * time.Second, 595 * time.Second}, at)
		require.Len(t, told, 4)
		require.Equal(t, 200*time.Second, told[0])
		require.Len(t, f.dialTimes(), 1)
		require.Equal(t, []device.Reason{device.Connecting, device.ConnectionOK}, w.reasons())
	})
}

// A renewal that fails, or is not answered, leads to a planned replacement of the session.
func TestRenewalInPlaceThatFails(t *testing.T) {
	for name, row := range map[string]struct {
		answer bool
		after  time.Duration
	}{"refused": {true, 85 * time.Second}, "no answer": {false, 95 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				start := time.Now()
				f := &fake{expires: func() time.Time { return start.Add(100 * time.Second) }}
				f.request = func(*fakeSession, *transport.Request) (transport.Reply, bool) {
					return transport.Reply{Err: refused(transport.Unavailable)}, row.answer
				}
				failed := 0
				c, w := client(t, f, &device.Options{AckTimeout: 10 * time.Second,
					Trace: &device.Trace{Renewed: func(_ time.Time, err error) {
						require.Error(t, err)
						failed++
					}}})
				open(t, c)
				time.Sleep(97 * time.Second)
				synctest.Wait()
				require.Equal(t, 1, failed)
				require.Equal(t, row.after, f.dialTimes()[1].Sub(start))
				require.Equal(t, device.TokenRenewal, w.reasons()[2])
			})
		})
	}
}
