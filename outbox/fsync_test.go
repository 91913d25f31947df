package outbox_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// The system reports a failed write to disk once: of two concurrent fsyncs of a file only one
// returns the error. So sealing a full segment waits for the running fsync.
func TestAFailingFsyncOfASegmentThatIsFull(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
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

// Close lets a Put that waits for an fsync have its result, and refuses one that was not written.
func TestCloseDuringAnFsync(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		d.on(onSync(func() error { time.Sleep(time.Second); return nil }))
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- q.Put(t.Context(), numbered(1)) }()
		synctest.Wait()
		go func() { second <- q.Put(t.Context(), numbered(2)) }()
		synctest.Wait()
		require.NoError(t, q.Close())
		require.NoError(t, <-first)
		require.ErrorIs(t, <-second, transport.Closed)
		q = openOn(t, d, nil)
		require.EqualValues(t, 1, q.Stats().Waiting)
		require.NoError(t, q.Close())
	})
}

// Callers that put one message after the other share each fsync, all of them.
func TestCallersShareAnFsync(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		var calls atomic.Int32
		d.on(onSync(func() error { calls.Add(1); time.Sleep(time.Millisecond); return nil }))
		const callers, each = 16, 50
		var wait sync.WaitGroup
		for c := range callers {
			wait.Go(func() {
				for n := range each {
					if err := q.Put(t.Context(), numbered(c*each+n)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
		require.Less(t, int(calls.Load()), each*3/2, "two groups of callers would need twice as many")
		got := take(t, q)
		require.ElementsMatch(t, ids(0, callers*each), got)
		last := map[int]int{}
		for _, id := range got {
			n, err := strconv.Atoi(id)
			require.NoError(t, err)
			require.GreaterOrEqual(t, n, last[n/each], "in order for each caller")
			last[n/each] = n
		}
		require.NoError(t, q.Close())
	})
}

// Messages put during an fsync that takes longer than SyncEvery get an fsync too.
func TestSyncEveryOnASlowDisk(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
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
	testkit.Bubble(t, func(t *testing.T) {
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

// With SyncEvery the messages in a file whose fsync failed were accepted: the file stays until they
// are done, because this process or the next one sends them.
func TestSyncEveryKeepsFilesWhoseFsyncFailed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{SyncEvery: time.Second})
		d.on(onSync(func() error { return syscall.EIO }))
		for n := range 5 {
			put(t, q, n, n+1)
			time.Sleep(time.Minute)
		}
		require.Len(t, d.segments(folder), 5)
		killed := openOn(t, d.kill(), nil)
		require.Equal(t, ids(0, 5), take(t, killed))
		require.NoError(t, killed.Close())
		require.Equal(t, ids(0, 5), take(t, q))
		q.Idle()
		require.LessOrEqual(t, len(d.segments(folder)), 1)
		d.on(nil)
		_ = q.Close() // the last fsync failed
	})
}

// A disk whose fsync fails does not fill with files: those in which no message is safe are removed.
// A power cut at any time, also one that brings them back, loses no safe message.
func TestFailedFsyncsLeaveNoFiles(t *testing.T) {
	for _, running := range []bool{false, true} {
		testkit.Run(t, "Run "+strconv.FormatBool(running), func(t *testing.T) {
			d := newDisk()
			q := openOn(t, d, nil)
			k := &taker{}
			stop := func() error { return nil }
			if running {
				stop = start(q, k)
			}
			safe := func(n int) {
				for _, a := range powerCuts {
					again := openOn(t, d.cut(a), nil)
					got := append(k.ids(), take(t, again)...)
					require.Subset(t, got, ids(0, n), a.name)
					require.NoError(t, again.Close())
				}
			}
			put(t, q, 0, 3)
			for round := range 3 {
				d.on(onSync(func() error { return syscall.EIO }))
				for n := range 100 {
					require.ErrorIs(t, q.Put(t.Context(), numbered(1000*round+1000+n)), syscall.EIO)
				}
				q.Idle()
				require.LessOrEqual(t, len(d.segments(folder)), round+2, "those with safe messages, and the latest one")
				safe(3 + round)
				d.on(nil)
				put(t, q, 3+round, 4+round)
				safe(4 + round)
			}
			require.LessOrEqual(t, q.Stats().Waiting, uint64(6+3), "and the first of each round, behind safe ones")
			if !running {
				stop = start(q, k)
			}
			require.NoError(t, flushSoon(t, q))
			require.ErrorIs(t, stop(), context.Canceled)
			require.Subset(t, k.ids(), ids(0, 6))
			require.Zero(t, q.Stats().Damaged)
			require.Zero(t, q.Stats().Waiting)
			require.NoError(t, q.Close())
			q = openOn(t, d, nil)
			require.Empty(t, take(t, q))
			require.NoError(t, q.Close())
		})
	}
}

// Flush waits for no message whose Put has failed and whose file is removed.
func TestFlushAfterFailedFsyncs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		d.on(onSync(func() error { return syscall.EIO }))
		require.ErrorIs(t, q.Put(t.Context(), numbered(0)), syscall.EIO)
		flushed := make(chan error, 1)
		go func() { flushed <- flushSoon(t, q) }()
		synctest.Wait()
		d.on(func(o op) error {
			if o.name == "create" {
				return syscall.EIO
			}
			return nil
		})
		require.ErrorIs(t, q.Put(t.Context(), numbered(1)), syscall.EIO)
		require.NoError(t, <-flushed)
		require.Zero(t, q.Stats().Waiting)
		d.on(nil)
		put(t, q, 2, 3)
		require.Equal(t, ids(2, 3), take(t, q))
		require.NoError(t, q.Close())
	})
}
