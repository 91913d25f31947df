package outbox_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

func TestCloseReportsEveryFailureJoined(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
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
