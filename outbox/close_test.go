package outbox_test

import (
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

func TestCloseReportsEveryFailureJoined(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{SyncEvery: time.Hour})
		d.on(func(o op) error {
			switch messages := strings.HasSuffix(o.path, ".messages"); {
			case o.name == "sync" && messages:
				return syscall.EIO
			case o.name == "sync":
				return syscall.ENXIO
			case o.name == "write" && !messages:
				return syscall.EROFS
			}
			return nil
		})
		put(t, q, 0, 2)
		require.ErrorIs(t, ended(t, q, &taker{most: 1}), errEnough)
		err := q.Close()
		for _, want := range []error{syscall.EIO, syscall.EROFS, syscall.ENXIO} {
			require.ErrorIs(t, err, want)
		}
		require.ErrorContains(t, err, "outbox: close: the mark: ")
		require.Equal(t, err, q.Close(), "another Close returns the same")
		require.NotErrorIs(t, err, transport.Timeout)
	})
}

// Every Close waits for the end, not only the first.
func TestTwoCloses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		release := make(chan struct{})
		q := open(t, t.TempDir(), &outbox.Options{OnFailed: func(*transport.Message, error) { <-release }})
		require.NoError(t, q.Put(t.Context(), &transport.Message{Expires: time.Now().Add(time.Second)}))
		time.Sleep(time.Minute)
		c := newClient(t, hub, nil)
		stop := start(q, c)
		synctest.Wait()
		closed := make(chan error, 2)
		for range 2 {
			go func() { closed <- q.Close() }()
		}
		synctest.Wait()
		require.Empty(t, closed)
		close(release)
		require.NoError(t, <-closed)
		require.NoError(t, <-closed)
		require.Error(t, stop())
		require.NoError(t, c.Close())
	})
}
