package device_test

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// limited returns a client that uses limiter, with a fake hub whose dials end as dial says.
func limited(t *testing.T, id int, limiter *device.DialLimiter, dial func(int, context.Context) error) (*device.Client,
	*fake) {
	t.Helper()
	cr := creds()
	cr.DeviceID = strconv.Itoa(id)
	f := &fake{dial: dial}
	c, err := device.New(cr, f, &device.Options{Dials: limiter, RetryPolicy: constant(time.Second)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, f
}

func TestAFailedDialGivesItsPlaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limiter := device.NewDialLimiter(1, 0)
		failing, f := limited(t, 1, limiter, down)
		require.NoError(t, failing.Start())
		time.Sleep(time.Minute - 500*ms)
		require.Len(t, f.dialTimes(), 60, "attempts of the client whose dials fail")

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		other, _ := limited(t, 2, limiter, nil)
		require.NoError(t, other.Open(ctx), "another client of the limiter")
	})
}

// Close ends the wait of a client that has a slot and waits for its turn.
func TestCloseWhileWaitingForATurnGivesThePlaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limiter := device.NewDialLimiter(1, time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		first, _ := limited(t, 1, limiter, nil)
		require.NoError(t, first.Open(ctx))
		second, f := limited(t, 2, limiter, nil)
		require.NoError(t, second.Start())
		time.Sleep(10 * time.Second)
		require.Empty(t, f.dialTimes(), "its turn is a minute after the first client's")
		require.NoError(t, second.Close())

		third, _ := limited(t, 3, limiter, nil)
		require.NoError(t, third.Open(ctx))
	})
}

// Close ends the wait of a client without a slot, and takes none.
func TestCloseWhileWaitingForAPlaceTakesNone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limiter := device.NewDialLimiter(1, 0)
		release := make(chan struct{})
		first, _ := limited(t, 1, limiter, func(int, context.Context) error { <-release; return nil })
		require.NoError(t, first.Start())
		synctest.Wait()
		second, f := limited(t, 2, limiter, nil)
		require.NoError(t, second.Start())
		synctest.Wait()
		require.NoError(t, second.Close())
		require.Empty(t, f.dialTimes())
		close(release)

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, first.Open(ctx))
		third, _ := limited(t, 3, limiter, nil)
		require.NoError(t, third.Open(ctx))
	})
}

// A dial that DialTimeout ends keeps its slot until it has returned, so a limiter of one never has
// two dials at a time.
func TestADialThatTimesOutKeepsItsPlaceUntilItEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limiter := device.NewDialLimiter(1, 0)
		slow, f := limited(t, 1, limiter, func(_ int, ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(5 * time.Second) // the transport cleans up
			return lost(transport.Timeout)
		})
		require.NoError(t, slow.Start())
		synctest.Wait()
		require.Len(t, f.dialTimes(), 1)
		other, g := limited(t, 2, limiter, nil)
		require.NoError(t, other.Start())
		time.Sleep(time.Hour)
		require.Equal(t, device.Connected, other.Status().State)
		require.GreaterOrEqual(t, g.dialTimes()[0].Sub(f.dialTimes()[0]), 35*time.Second, "DialTimeout, and 5 s to clean up")
	})
}
