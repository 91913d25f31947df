package outbox_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// A segment that failed before its first record does not affect the next one with the same number.
func TestASegmentThatFailsAtOnce(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		d.on(func(o op) error {
			if o.name == "write" || o.name == "truncate" {
				return syscall.EIO
			}
			return nil
		})
		require.ErrorIs(t, q.Put(t.Context(), numbered(0)), syscall.EIO)
		d.on(nil)
		require.NoError(t, flushSoon(t, q), "nothing waits")
		put(t, q, 1, 2)
		require.Equal(t, ids(1, 2), bodies(t, q))
		put(t, q, 2, 4)
		require.NoError(t, q.Close())
		q = openOn(t, d, nil)
		require.Equal(t, ids(2, 4), bodies(t, q))
		require.NoError(t, q.Close())
	})
}

// A crash between creating a segment and writing its first record, when the mark, or the end of the
// previous segment, was not durable.
func TestASegmentWithoutARecord(t *testing.T) {
	for name, old := range map[string]int{"alone": 0, "behind another": 5} {
		t.Run(name, func(t *testing.T) {
			bounded.Test(t, func(t *testing.T) {
				folder := t.TempDir()
				q := open(t, folder, nil)
				put(t, q, 0, old)
				require.NoError(t, q.Close())
				empty := outbox.SegmentName(100, 7)
				require.NoError(t, os.WriteFile(filepath.Join(folder, empty), nil, 0o600))
				q = open(t, folder, nil)
				require.EqualValues(t, old, q.Stats().Waiting)
				require.Zero(t, q.Stats().Damaged)
				put(t, q, old, 10)
				require.Equal(t, ids(0, 10), bodies(t, q))
				require.NoError(t, q.Close())
			})
		})
	}
}

// A segment deleted because all its messages were done, before the mark was durable, does not count
// as damage.
func TestAMarkThatIsOld(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		q := open(t, folder, &outbox.Options{MaxBytes: 1 << 20})
		put(t, q, 0, 5)
		require.Len(t, bodies(t, q), 5)
		for range 30 {
			require.NoError(t, q.Put(t.Context(), &transport.Message{Body: make([]byte, 10_000)}))
		}
		require.NoError(t, q.Close())
		require.NoError(t, os.Remove(segments(t, folder)[0]))
		q = open(t, folder, nil)
		require.Zero(t, q.Stats().Damaged)
		require.NoError(t, q.Close())
	})
}

// Only a regular file is a segment. Any other entry of that name is refused and kept.
func TestOnlyRegularFilesAreSegments(t *testing.T) {
	name := outbox.SegmentName(0, 1)
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	require.NoError(t, os.WriteFile(elsewhere, []byte("precious"), 0o600))
	for kind, make := range map[string]func(path string) error{
		"folder":        func(path string) error { return os.Mkdir(path, 0o700) },
		"symbolic link": func(path string) error { return os.Symlink(elsewhere, path) },
	} {
		t.Run(kind, func(t *testing.T) {
			folder := t.TempDir()
			path := filepath.Join(folder, name)
			require.NoError(t, make(path))
			_, err := outbox.Open(folder, nil)
			require.ErrorContains(t, err, path)
			_, err = os.Lstat(path)
			require.NoError(t, err)
			_, err = outbox.OS.Open(path, os.O_RDWR)
			require.Error(t, err, "the check must hold at the open as well")
			precious, err := os.ReadFile(elsewhere)
			require.NoError(t, err)
			require.Equal(t, "precious", string(precious))
		})
	}
	for _, name := range []string{"done", "lock"} {
		folder := t.TempDir()
		require.NoError(t, os.Symlink(elsewhere, filepath.Join(folder, name)))
		_, err := outbox.Open(folder, nil)
		require.Error(t, err, "%s is a symbolic link", name)
	}
}
