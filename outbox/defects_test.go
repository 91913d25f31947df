package outbox_test

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// The system reports a failed write to disk once: of two concurrent fsyncs of a file only one
// returns the error. So sealing a full segment waits for the running fsync.
func TestAFailingFsyncOfASegmentThatIsFull(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20})
		release := make(chan struct{})
		var calls atomic.Int32
		d.on(onSync(func() error {
			if calls.Add(1) == 1 {
				<-release
				return syscall.EIO
			}
			return nil
		}))
		first, second := make(chan error, 1), make(chan error, 1)
		body := make([]byte, 100_000)
		go func() { first <- q.Put(t.Context(), &transport.Message{Body: body}) }()
		synctest.Wait()
		go func() { second <- q.Put(t.Context(), &transport.Message{Body: body}) }()
		synctest.Wait()
		close(release)
		require.ErrorIs(t, <-first, syscall.EIO)
		require.NoError(t, <-second)
		require.NoError(t, q.Close())
	})
}

// The same for Close.
func TestAFailingFsyncDuringClose(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		var calls atomic.Int32
		d.on(onSync(func() error {
			n := calls.Add(1)
			time.Sleep(time.Second)
			if n == 2 {
				return syscall.EIO
			}
			return nil
		}))
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- q.Put(t.Context(), numbered(1)) }()
		synctest.Wait()
		go func() { second <- q.Put(t.Context(), numbered(2)) }()
		synctest.Wait()
		_ = q.Close()
		require.NoError(t, <-first)
		require.ErrorIs(t, <-second, syscall.EIO)
	})
}

// Messages put during an fsync that takes longer than SyncEvery get an fsync too.
func TestSyncEveryOnASlowDisk(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{SyncEvery: time.Second, CloseTimeout: time.Minute})
		d.on(onSync(func() error { time.Sleep(5 * time.Second); return nil }))
		put(t, q, 0, 1)
		time.Sleep(1500 * time.Millisecond)
		put(t, q, 1, 2)
		time.Sleep(time.Minute)
		require.Zero(t, q.Unsynced())
		require.NoError(t, q.Close())
	})
}

// With SyncEvery a failed fsync cannot be reported by Put.
func TestSyncEveryOnAFailingDisk(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{SyncEvery: time.Second})
		d.on(onSync(func() error { return syscall.EIO }))
		put(t, q, 0, 1)
		time.Sleep(time.Minute)
		put(t, q, 1, 2)
		require.ErrorIs(t, q.Close(), syscall.EIO)
		require.EqualValues(t, 2, q.Stats().SyncErrors)
	})
}

// onSync is a hook for fsyncs of segments.
func onSync(f func() error) func(op) error {
	return func(o op) error {
		if o.name == "sync" && strings.HasSuffix(o.path, ".messages") {
			return f()
		}
		return nil
	}
}

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

// flushSoon is Flush with a time limit.
func flushSoon(t testing.TB, q *outbox.Queue) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return q.Flush(ctx)
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

// Times outside the range of nanoseconds since 1970.
func TestTimesFarFromNowAreKept(t *testing.T) {
	for _, year := range []int{1, 1600, 1969, 2300, 9999} {
		m := transport.Message{Expires: time.Date(year, 12, 31, 23, 59, 59, 999_999_999, time.UTC)}
		var got transport.Message
		require.NoError(t, outbox.ReadMessage(outbox.AppendMessage(nil, &m), &got))
		require.True(t, got.Expires.Equal(m.Expires), "%v became %v", m.Expires, got.Expires)
	}
}

func TestRunAfterClose(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		q := open(t, t.TempDir(), nil)
		require.NoError(t, q.Close())
		ran := make(chan error, 1)
		go func() { ran <- q.Run(t.Context(), nil) }()
		synctest.Wait()
		require.Len(t, ran, 1, "Run hangs")
		require.ErrorIs(t, <-ran, transport.Closed)
	})
}

// Messages that are done are released from memory.
func TestMessagesThatAreDoneLeaveMemory(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		var body weak.Pointer[byte]
		q := open(t, t.TempDir(), &outbox.Options{OnFailed: func(m *transport.Message, err error) {
			body = weak.Make(&m.Body[0])
		}})
		require.NoError(t, q.Put(t.Context(), &transport.Message{Expires: time.Now().Add(time.Second),
			Body: make([]byte, 100_000)}))
		time.Sleep(time.Minute)
		c := newClient(t, hub, nil)
		stop := start(q, c)
		require.NoError(t, q.Flush(t.Context()))
		synctest.Wait() // Run handles the next one
		runtime.GC()
		require.Nil(t, body.Value())
		require.Error(t, stop())
		require.NoError(t, c.Close())
		require.NoError(t, q.Close())
	})
}

// Every Close waits for the end, not only the first.
func TestTwoCloses(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
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

// Close returns the error of an fsync that failed in the background, which no Put could return.
func TestCloseReportsAFailedFsync(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{SyncEvery: time.Second})
		d.on(onSync(func() error { return syscall.EIO }))
		put(t, q, 0, 1)
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, q.Stats().SyncErrors)
		require.ErrorIs(t, q.Close(), syscall.EIO)
	})
}
