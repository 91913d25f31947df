package device_test

import (
	"context"
	"strconv"
	"sync"
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
	c, err := device.New(cr, f, &device.Options{Dials: limiter, RetryPolicy: constant(time.Second), ReconnectSpread: -1})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, f
}

// Close ends the wait of a client that has a slot and waits for its turn.
func TestCloseWhileWaitingForATurnGivesThePlaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limiter := device.NewDialLimiter(1, time.Minute)
		ctx := within(t, 10*time.Minute)
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

// Calls that end before their turn leave it to the others.
func TestCallsThatEndBeforeTheirTurnTakeNone(t *testing.T) {
	for name, before := range map[string]time.Duration{
		"before the attempt":            0,
		"after a wait of the transport": time.Minute - ms,
	} {
		run(t, name, func(t *testing.T) {
			limiter := device.NewDialLimiter(1, time.Minute)
			first, _ := limited(t, 1, limiter, nil)
			require.NoError(t, first.Open(within(t, time.Second)))
			time.Sleep(before)
			second, err := device.New(creds(), waiting{&fake{}, ms}, &device.Options{Dials: limiter})
			require.NoError(t, err)
			t.Cleanup(func() { _ = second.Close() })
			for range 5 {
				require.Error(t, second.Open(within(t, 10*time.Second)))
			}
			third, _ := limited(t, 3, limiter, nil)
			require.NoError(t, third.Open(within(t, 90*time.Second)))
		})
	}
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

		ctx := within(t, time.Minute)
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
		require.Equal(t, device.StateConnected, other.Status().State)
		require.GreaterOrEqual(t, g.dialTimes()[0].Sub(f.dialTimes()[0]), 35*time.Second, "DialTimeout, and 5 s to clean up")
	})
}

// waiting is a transport that waits before it dials.
type waiting struct {
	*fake
	wait time.Duration
}

func (w waiting) Dial(ctx context.Context, cfg *transport.Config) (transport.Session, error) {
	if err := cfg.Wait(ctx, w.wait); err != nil {
		return nil, err
	}
	return w.fake.Dial(ctx, cfg)
}

// A transport that waits before its requests gives its slot to other clients meanwhile, and takes
// one before it goes on.
func TestAWaitBeforeTheRequestsTakesNoPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limiter := device.NewDialLimiter(1, time.Second)
		var mu sync.Mutex
		var began []time.Time
		atOnce, most := 0, 0
		dial := func(int, context.Context) error {
			mu.Lock()
			began = append(began, time.Now())
			atOnce++
			most = max(most, atOnce)
			mu.Unlock()
			time.Sleep(100 * ms)
			mu.Lock()
			atOnce--
			mu.Unlock()
			return nil
		}
		ctx := within(t, time.Minute)
		start := time.Now()
		var all []*device.Client
		for i := range 5 {
			cr := creds()
			cr.DeviceID = strconv.Itoa(i)
			c, err := device.New(cr, waiting{&fake{dial: dial}, time.Duration(20-i) * time.Second},
				&device.Options{Dials: limiter}) // all waits end at once
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			require.NoError(t, c.Start())
			all = append(all, c)
		}
		for _, c := range all {
			require.NoError(t, c.Open(ctx))
		}
		require.Less(t, time.Since(start), 27*time.Second)
		require.Equal(t, 1, most)
		for i := range began[1:] {
			require.GreaterOrEqual(t, began[i+1].Sub(began[i]), time.Second, "the gap")
		}
	})
}

// Close ends such a wait, with the slot or without one, and the slot is there for the next client.
func TestCloseDuringAWaitBeforeTheRequests(t *testing.T) {
	for name, after := range map[string]time.Duration{"in the wait": 5 * time.Second, "for a place": 15 * time.Second} {
		run(t, name, func(t *testing.T) {
			limiter := device.NewDialLimiter(1, 0)
			c, err := device.New(creds(), waiting{&fake{}, 10 * time.Second}, &device.Options{Dials: limiter})
			require.NoError(t, err)
			require.NoError(t, c.Start())
			time.Sleep(time.Second)
			release := make(chan struct{})
			slow, _ := limited(t, 1, limiter, func(int, context.Context) error { <-release; return nil })
			require.NoError(t, slow.Start())
			time.Sleep(after)
			require.NoError(t, c.Close())
			other, f := limited(t, 2, limiter, nil)
			require.NoError(t, other.Start())
			time.Sleep(time.Second)
			require.Empty(t, f.dialTimes(), "the slot is the other client's")
			close(release)
			ctx := within(t, time.Minute)
			require.NoError(t, other.Open(ctx))
		})
	}
}

// Clients begin in the order in which they came, also those that are woken meanwhile, and the last
// of them gives all back.
func TestClientsBeginInOrder(t *testing.T) {
	const clients = 8
	for name, attempts := range map[string]int{"one attempt at a time": 1, "one for each": clients} {
		run(t, name, func(t *testing.T) {
			limiter := device.NewDialLimiter(attempts, time.Minute)
			var mu sync.Mutex
			var begun []int
			for n := range clients {
				c, _ := limited(t, n, limiter, func(int, context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					begun = append(begun, n)
					return nil
				})
				require.NoError(t, c.Start())
				time.Sleep(time.Second)
				if n < clients/2 {
					time.AfterFunc(clients*time.Second, func() { _ = c.SetMessagePolicy(nil) }) // all wait
				}
			}
			time.Sleep(clients * time.Minute)
			mu.Lock()
			defer mu.Unlock()
			require.IsIncreasing(t, begun)
			require.Len(t, begun, clients)
		})
	}
}
