package outbox_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// A power cut before any call to the disk, with any part of the cache written by then, loses no
// safe message, keeps the order, and causes few duplicates.
func TestAPowerCutLosesNothingThatWasSafe(t *testing.T) {
	for _, every := range []time.Duration{0, time.Second} {
		testkit.Run(t, fmt.Sprint("SyncEvery ", every), func(t *testing.T) {
			w := &powered{t: t, every: every, turn: make(chan struct{}, 1), disk: newDisk()}
			w.disk.on(w.before)
			q := openOn(t, w.disk, &outbox.Options{SyncEvery: every, MaxBytes: 1 << 20})
			w.put(q, 0, 10)
			stop := start(q, w)
			w.put(q, 10, 30) // while Run runs
			require.NoError(t, flushSoon(t, q))
			w.put(q, 30, 36)
			require.Error(t, stop())
			w.put(q, 36, 50) // without Run
			require.ErrorIs(t, ended(t, q, &upTo{powered: w, last: 43}), errEnough)
			time.Sleep(10 * time.Second)
			w.put(q, 50, 55)
			require.NoError(t, q.Close())
			q = openOn(t, w.disk, &outbox.Options{SyncEvery: every, MaxBytes: 1 << 20})
			w.put(q, 55, 60)
			stop = start(q, w)
			require.NoError(t, flushSoon(t, q))
			require.Error(t, stop())
			w.put(q, 60, 62)
			require.NoError(t, q.Close())
			t.Logf("%d power cuts, at most %d messages twice", w.cuts, w.twice)
			require.Greater(t, w.calls, 100)
			require.True(t, w.cuts == w.calls || w.cuts == w.calls*len(powerCuts))
		})
	}
}

// powered is a workload on a disk whose power is cut before each call.
type powered struct {
	sending
	t     *testing.T
	every time.Duration
	turn  chan struct{} // capacity 1: one cut at a time
	disk  *disk

	calls int // before which the power was cut; holding turn

	mu    sync.Mutex
	taken []time.Time // time at which Put of message n returned nil
	done  int         // the client finished all messages below
	cuts  int
	twice int
}

// put puts messages; four of them fill a segment.
func (w *powered) put(q *outbox.Queue, from, to int) {
	for n := from; n < to; n++ {
		require.NoError(w.t, q.Put(w.t.Context(), quarter(n)))
		w.mu.Lock()
		w.taken = append(w.taken, time.Now())
		w.mu.Unlock()
		time.Sleep(200 * time.Millisecond)
	}
}

func quarter(n int) *transport.Message {
	m := numbered(n)
	m.Body = append(m.Body, make([]byte, 30_000)...)
	return m
}

func (w *powered) Enqueue(_ context.Context, m *transport.Message, _ *device.Receipt) error {
	n, err := strconv.Atoi(m.ID)
	if err != nil {
		w.t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done = max(w.done, n+1)
	return errExpired
}

// upTo is a client that accepts the messages up to last.
type upTo struct {
	*powered
	last int
}

func (u *upTo) Enqueue(ctx context.Context, m *transport.Message, r *device.Receipt) error {
	if n, err := strconv.Atoi(m.ID); err != nil || n > u.last {
		return errEnough
	}
	return u.powered.Enqueue(ctx, m, r)
}

// before cuts the power in each way, once all other goroutines wait and have recorded their
// results. With -short it tries one way before each call, each in its turn.
func (w *powered) before(o op) error {
	switch o.name {
	case "read", "list", "open", "linked": // without effect on the disk
		return nil
	}
	w.turn <- struct{}{}
	synctest.Wait()
	ways := powerCuts[w.calls%len(powerCuts):][:1]
	if testkit.Long() {
		ways = powerCuts[:]
	}
	w.calls++
	for _, a := range ways {
		w.check(o, a)
	}
	<-w.turn
	return nil
}

// check opens the disk after a power cut and checks the messages that arrive.
func (w *powered) check(o op, a after) {
	w.mu.Lock()
	safe := 0 // all messages below were safe
	for n, at := range w.taken {
		if w.every == 0 || time.Since(at) > w.every {
			safe = n + 1
		}
	}
	done := w.done
	w.cuts++
	w.mu.Unlock()
	where := fmt.Sprintf("power cut before %s of %s (cut %d), %s: %d safe, %d done", o.name, o.path, w.cuts, a.name, safe,
		done)
	left := w.disk.cut(a)
	q, err := outbox.OpenOn(left, folder, &outbox.Options{MaxBytes: 1 << 20, OnFailed: ignore})
	if err != nil {
		w.t.Errorf("%s: %v", where, err)
		return
	}
	k := &taker{}
	stop := start(q, k)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	put := q.Put(ctx, numbered(1000))
	flushed := q.Flush(ctx)
	_ = stop()
	closed := q.Close()
	if put != nil || flushed != nil || closed != nil {
		w.t.Errorf("%s: Put %v, Flush %v, Close %v", where, put, flushed, closed)
		return
	}
	got := make([]int, 0, len(k.ids()))
	for _, id := range k.ids() {
		n, err := strconv.Atoi(id)
		if err != nil {
			w.t.Errorf("%s: %v", where, err)
		}
		got = append(got, n)
	}
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		w.t.Errorf("%s: order: %v", where, got)
	}
	for n := done; n < safe; n++ {
		if !slices.Contains(got, n) {
			w.t.Errorf("%s: message %d is lost: %v", where, n, got)
		}
	}
	again := 0
	for _, n := range got {
		if n < done {
			again++
		}
	}
	if w.twice = max(w.twice, again); again > mostTwice {
		w.t.Errorf("%s: %d messages come again: %v", where, again, got)
	}
}

// mostTwice is the maximum number of duplicates after a power cut: the messages of a segment,
// because the mark is synced when one is removed, and those that Run finished together before the
// mark was written.
const mostTwice = 4 + 16

// A process is killed while its messages are only in the system's cache. The next one syncs them
// before it treats them as durable.
func TestMessagesOfAKilledProcessGetToTheDisk(t *testing.T) {
	for _, every := range []time.Duration{0, time.Hour} {
		testkit.Bubble(t, func(t *testing.T) {
			d := newDisk()
			q := openOn(t, d, &outbox.Options{SyncEvery: time.Hour})
			put(t, q, 0, 10)
			d = d.kill()
			require.NoError(t, q.Close())
			q = openOn(t, d, &outbox.Options{SyncEvery: every})
			require.Zero(t, q.Unsynced())
			q = openOn(t, d.cut(powerCuts[0]), nil)
			require.Equal(t, ids(0, 10), take(t, q))
		})
	}
}

// A failed fsync in Open is counted, and the messages are not treated as durable.
func TestOpenCountsFailedFsyncs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{SyncEvery: time.Hour})
		put(t, q, 0, 10)
		d = d.kill()
		require.NoError(t, q.Close())
		d.on(onSync(func() error { return context.DeadlineExceeded }))
		q = openOn(t, d, nil)
		require.EqualValues(t, 1, q.Stats().SyncErrors)
		require.EqualValues(t, 10, q.Unsynced())
		require.Equal(t, ids(0, 10), take(t, q))
		require.NoError(t, q.Close())
	})
}

// The names of new folders, and of new segments, are durable when Put returns.
func TestTheNamesOfNewFoldersAreDurable(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		deep := absolute("/var/lib/thermometer/outbox")
		q, err := outbox.OpenOn(d, deep, nil)
		require.NoError(t, err)
		put(t, q, 0, 1)
		q, err = outbox.OpenOn(d.cut(powerCuts[0]), deep, nil)
		require.NoError(t, err)
		require.Equal(t, ids(0, 1), take(t, q))
	})
}
