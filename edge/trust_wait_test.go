package edge_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// hangs makes a daemon leave connections open without an answer.
const hangs = "hangs"

// withOldBundle runs f with a module whose bundle is two hours old.
func withOldBundle(t *testing.T, f func(t *testing.T, b *bundles)) {
	withBundles(t, func(t *testing.T, b *bundles) {
		roots := b.renew(t)
		b.requireRoots(t, nil, roots, 1)
		time.Sleep(2 * time.Hour)
		f(t, b)
	})
}

// An old bundle serves every connection attempt in time while the daemon hangs.
func TestAHangingDaemonDelaysNoConnections(t *testing.T) {
	for _, c := range []struct {
		clients int
		limit   time.Duration // of a connection attempt
	}{{1, 30 * time.Second}, {2, 30 * time.Second}, {5, 30 * time.Second}, {1, 15 * time.Second}, {5, 15 * time.Second}} {
		t.Run(fmt.Sprint(c.clients, " clients, ", c.limit), func(t *testing.T) {
			withOldBundle(t, func(t *testing.T, b *bundles) {
				b.text = hangs
				end := time.Now().Add(10 * time.Minute)
				var clients sync.WaitGroup
				for range c.clients {
					clients.Go(func() {
						waited := time.Duration(0)
						for time.Now().Before(end) {
							ctx, cancel := context.WithTimeout(t.Context(), c.limit)
							began := time.Now()
							got, err := b.ask(ctx, nil)
							took := time.Since(began)
							require.NoError(t, err)
							require.NoError(t, ctx.Err())
							require.NotNil(t, got)
							require.LessOrEqual(t, took, 3*time.Second)
							waited += took
							cancel()
							time.Sleep(time.Second)
						}
						require.LessOrEqual(t, waited, 10*3*time.Second)
					})
				}
				clients.Wait()
				fetches := len(b.calls()) - 1
				require.LessOrEqual(t, fetches, 10)
				require.GreaterOrEqual(t, fetches, 9, "each minute")
			})
		})
	}
}

// A daemon that answers again replaces the old bundle within a minute.
func TestAnOldBundleIsReplacedAfterAMinute(t *testing.T) {
	withOldBundle(t, func(t *testing.T, b *bundles) {
		b.text = hangs
		old, err := b.ask(t.Context(), nil)
		require.NoError(t, err)
		newer := b.renew(t)
		time.Sleep(time.Minute - time.Second)
		b.requireRoots(t, nil, old, 2)
		time.Sleep(time.Second)
		b.requireRoots(t, nil, newer, 3)
	})
}

// A refused certificate needs the daemon's answer: its fetch has all of Options.Timeout, also soon
// after a failed one.
func TestARefusalWaitsForTheDaemon(t *testing.T) {
	withOldBundle(t, func(t *testing.T, b *bundles) {
		b.text = hangs
		_, err := b.ask(t.Context(), nil)
		require.NoError(t, err)
		for range 2 {
			began := time.Now()
			_, err := b.ask(t.Context(), errRefused)
			require.ErrorIs(t, err, transport.Timeout)
			require.Equal(t, 20*time.Second, time.Since(began))
		}
		roots := b.renew(t)
		b.requireRoots(t, errRefused, roots, 5)
	})
}

// Clients whose certificate verifies do not wait for the fetch of one whose did not.
func TestARefusalDelaysNoOtherClients(t *testing.T) {
	for name, c := range map[string]struct {
		age, wait time.Duration
	}{
		"with a bundle that is good": {10 * time.Minute, 0},
		"with an old bundle":         {2 * time.Hour, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			withBundles(t, func(t *testing.T, b *bundles) {
				roots := b.renew(t)
				b.requireRoots(t, nil, roots, 1)
				time.Sleep(c.age)
				b.text = hangs
				var refused sync.WaitGroup
				refused.Go(func() {
					_, err := b.ask(t.Context(), errRefused)
					require.ErrorIs(t, err, transport.Timeout)
				})
				synctest.Wait()
				began := time.Now()
				got, err := b.ask(t.Context(), nil)
				took := time.Since(began)
				refused.Wait()
				require.NoError(t, err)
				require.True(t, roots.Equal(got))
				require.Equal(t, c.wait, took)
				require.Len(t, b.calls(), 2)
			})
		})
	}
}
