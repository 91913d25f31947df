package outbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
)

// A segment that failed before its first record does not affect the next one with the same number.
func TestASegmentThatFailsAtOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
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

// A disk that writes and truncates nothing more, and still makes files, does not fill with them.
func TestSegmentsThatFailAtOnceLeaveNoFiles(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		put(t, q, 0, 3)
		d.on(func(o op) error {
			if o.name == "write" || o.name == "truncate" {
				return syscall.EIO
			}
			return nil
		})
		for n := range 100 {
			require.ErrorIs(t, q.Put(t.Context(), numbered(n)), syscall.EIO)
		}
		q.Idle()
		require.Len(t, d.segments(folder), 1)
		d.on(nil)
		put(t, q, 3, 6)
		require.NoError(t, q.Close())
		q = openOn(t, d, nil)
		require.EqualValues(t, 100, q.Stats().Damaged, "the numbers of the failed Puts")
		require.Equal(t, ids(0, 6), bodies(t, q))
		require.NoError(t, q.Close())
	})
}

// A crash between creating a segment and writing its first record, when the mark, or the end of the
// previous segment, was not durable.
func TestASegmentWithoutARecord(t *testing.T) {
	for name, old := range map[string]int{"alone": 0, "behind another": 5} {
		testkit.Run(t, name, func(t *testing.T) {
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
	}
}

// A file that is gone is damage, wherever it was, and its messages are counted: each of them after
// Close, and at least one after the end of the process. The others are sent.
func TestAFileThatIsGone(t *testing.T) {
	for _, every := range []time.Duration{0, time.Second, -1} {
		for name, gone := range map[string]func(all []string) []string{
			"first":  func(all []string) []string { return all[:1] },
			"middle": func(all []string) []string { return all[1:2] },
			"last":   func(all []string) []string { return all[len(all)-1:] },
			"all":    func(all []string) []string { return all },
		} {
			testkit.Run(t, fmt.Sprint(name, ", SyncEvery ", every), func(t *testing.T) {
				for _, kill := range []bool{false, true} {
					o := &outbox.Options{MaxBytes: 1 << 20, SyncEvery: every, OnFailed: ignore}
					d := newDisk()
					q := openOn(t, d, o)
					for n := range 18 { // five files, the last one with two messages
						require.NoError(t, q.Put(t.Context(), quarter(n)))
					}
					require.ErrorIs(t, ended(t, q, &taker{most: 2}), errEnough)
					time.Sleep(time.Minute)
					q.Idle()
					if kill {
						d = d.kill()
					} else {
						require.NoError(t, q.Close())
					}
					for _, path := range gone(d.segments(folder)) {
						require.NoError(t, d.Remove(path))
					}
					q = openOn(t, d, o)
					damaged := q.Stats().Damaged
					put(t, q, 100, 101)
					got := take(t, q)
					require.Equal(t, damaged, q.Stats().Damaged, "Run counts it again")
					if lost := 16 + 1 - len(got); kill {
						require.LessOrEqual(t, damaged, uint64(lost))
						require.GreaterOrEqual(t, damaged, uint64(max(1, lost-1)))
					} else {
						require.EqualValues(t, lost, damaged)
					}
					require.NoError(t, q.Close())
					q = openOn(t, d, o)
					require.Zero(t, q.Stats().Damaged, "all is done")
					require.NoError(t, q.Close())
				}
			})
		}
	}
}

// A file is removed only when the mark is durable, so a power cut does not make it look lost.
func TestAFileThatIsDoneIsNotMissed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20})
		for n := range 10 {
			require.NoError(t, q.Put(t.Context(), quarter(n)))
		}
		require.ErrorIs(t, ended(t, q, &taker{most: 5}), errEnough)
		q.Idle()
		for _, way := range powerCuts {
			again := openOn(t, d.cut(way), &outbox.Options{MaxBytes: 1 << 20})
			require.Zero(t, again.Stats().Damaged, way.name)
			require.NoError(t, again.Close())
		}
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
