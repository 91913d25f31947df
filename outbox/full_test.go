package outbox_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// sized returns a message of about 5 KB.
func sized(n int) *transport.Message {
	m := numbered(n)
	m.Body = append(m.Body, make([]byte, 5000)...)
	return m
}

// A full disk refuses messages with Quota, and accepts them again when earlier ones are done,
// without a restart. No message is lost, and the next process sends none again.
func TestAFullDiskRecovers(t *testing.T) {
	for _, every := range []time.Duration{0, time.Second, -1} {
		for _, overflow := range []device.Overflow{device.OverflowBlock, device.OverflowDropOldest} {
			testkit.Run(t, fmt.Sprint("SyncEvery ", every, ", Overflow ", overflow), func(t *testing.T) {
				d := newDisk()
				d.capacity = 700 << 10
				fullDisk(t, d, folder, &outbox.Options{SyncEvery: every, Overflow: overflow})
			})
		}
	}
}

// fullDisk fills a disk of a few hundred KB, three times.
func fullDisk(t *testing.T, fs outbox.FileSystem, folder string, o *outbox.Options) {
	q, err := outbox.OpenOn(fs, folder, o)
	require.NoError(t, err)
	n := 0
	for round := range 3 {
		begun := n
		for ; ; n++ {
			require.Less(t, n, 1000, "the disk is never full")
			err := q.Put(t.Context(), sized(n))
			if err == nil {
				continue
			}
			require.ErrorIs(t, err, transport.Quota)
			require.ErrorIs(t, err, errDiskFull)
			require.ErrorContains(t, err, "the disk is full")
			break
		}
		require.Greater(t, n-begun, 80, "round %d: most of the disk can be used", round)
		require.ErrorIs(t, q.Put(t.Context(), sized(n)), transport.Quota, "still full")
		s := q.Stats()
		require.EqualValues(t, n-begun, s.Waiting)
		require.Zero(t, s.Dropped)

		// Only a part is done: the rest keeps its space.
		require.ErrorIs(t, ended(t, q, &taker{most: 20}), errEnough)
		require.EqualValues(t, n-begun-20, q.Stats().Waiting)

		got := &taker{}
		stop := start(q, got)
		require.NoError(t, flushSoon(t, q))
		require.Equal(t, ids(begun+20, n), got.ids())
		require.Error(t, stop())
		require.Zero(t, q.Stats().MarkErrors)
	}
	// Run continues, as in real programs: a file that it has open keeps its space.
	for ; q.Put(t.Context(), sized(n)) == nil; n++ {
		require.Less(t, n, 1000, "the disk is never full")
	}
	stop := start(q, &taker{})
	require.NoError(t, flushSoon(t, q))
	require.NoError(t, q.Put(t.Context(), sized(n)), "the disk stays full though all is done")
	require.NoError(t, flushSoon(t, q))
	require.Error(t, stop())
	require.NoError(t, q.Put(t.Context(), sized(n)))
	require.NoError(t, q.Close())
	q, err = outbox.OpenOn(fs, folder, o)
	require.NoError(t, err)
	require.EqualValues(t, 1, q.Stats().Waiting)
	got := &taker{}
	stop = start(q, got)
	require.NoError(t, flushSoon(t, q))
	require.Equal(t, ids(n, n+1), got.ids())
	require.Error(t, stop())
	require.NoError(t, q.Close())
}

// The blocks of the mark are allocated from the beginning, so it can be written on a full disk.
func TestTheMarkDoesNotGrowOnAFullDisk(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		put(t, q, 0, 200)
		d.mu.Lock()
		d.capacity = 1 // other files have filled it
		d.mu.Unlock()
		require.Len(t, take(t, q), 200)
		q.Idle()
		require.Zero(t, q.Stats().MarkErrors)
		q = openOn(t, d.kill(), nil)
		require.Zero(t, q.Stats().Waiting)
	})
}

// Open works on a full disk, so that the waiting messages can be sent.
func TestOpenOnAFullDisk(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		put(t, q, 0, 50)
		require.NoError(t, q.Close())
		require.NoError(t, d.Remove(markFile))
		d.capacity = 1
		q = openOn(t, d, nil)
		require.Equal(t, ids(0, 50), take(t, q))
		require.ErrorIs(t, q.Close(), syscall.ENOSPC, "the mark has no room")
	})
}

// A file that cannot be removed takes no space.
func TestAFullDiskWithAFileThatCannotBeRemoved(t *testing.T) {
	for name, windows := range map[string]bool{"at all": false, "while Run reads it, on Windows": true} {
		testkit.Run(t, name, func(t *testing.T) {
			d := newDisk()
			d.capacity, d.windows = 700<<10, windows
			q := openOn(t, d, nil)
			n := 0
			var err error
			for ; err == nil; n++ {
				require.Less(t, n, 1000, "the disk is never full")
				err = q.Put(t.Context(), sized(n))
			}
			require.ErrorIs(t, err, transport.Quota)
			if !windows {
				d.on(failing("remove", syscall.EACCES))
			}
			k := &taker{}
			stop := start(q, k)
			require.NoError(t, flushSoon(t, q))
			require.NoError(t, q.Put(t.Context(), sized(n-1)))
			require.NoError(t, flushSoon(t, q))
			require.Equal(t, ids(0, n), k.ids())
			require.Error(t, stop())
			require.NoError(t, q.Close())
		})
	}
}
