package outbox_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// stall is a hook that blocks the ops with the given name until it is released.
type stall struct {
	op      string
	on      atomic.Bool
	release chan struct{}
}

func newStall(op string) *stall { return &stall{op: op, release: make(chan struct{})} }

func (s *stall) hook(o op) error {
	if s.on.Load() && o.name == s.op {
		<-s.release
	}
	return nil
}

func (s *stall) end() {
	s.on.Store(false)
	close(s.release)
}

// took returns the duration of f.
func took(f func()) time.Duration {
	begun := time.Now()
	f()
	return time.Since(begun)
}

// A disk that does not answer blocks no caller for longer than its context.
func TestAStalledDiskBlocksNoCaller(t *testing.T) {
	for _, op := range []string{"write", "sync", "syncfolder", "create", "linked"} {
		for _, every := range []time.Duration{0, time.Millisecond, -1} {
			if every != 0 && (op == "sync" || op == "syncfolder") || every < 0 && op == "linked" {
				continue // Put does not wait for it
			}
			testkit.Run(t, fmt.Sprint(op, ", SyncEvery ", every), func(t *testing.T) {
				d := newDisk()
				q := openOn(t, d, &outbox.Options{SyncEvery: every})
				s := newStall(op)
				d.on(s.hook)
				s.on.Store(true)
				soon := func() context.Context {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					t.Cleanup(cancel)
					return ctx
				}
				for n := range 3 {
					var err error
					require.Equal(t, time.Second, took(func() { err = q.Put(soon(), numbered(n)) }))
					require.ErrorIs(t, err, transport.Cancelled)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					if n > 0 { // the outcome of the first one is unknown, the others were not written
						require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
					}
				}
				require.Zero(t, took(func() { q.Stats() }))
				require.LessOrEqual(t, took(func() { _ = q.Flush(soon()) }), time.Second)
				require.Equal(t, 5*time.Second, took(func() { require.ErrorIs(t, q.Close(), transport.Timeout) }))
				s.on.Store(false) // for the others
				_, err := outbox.OpenOn(d, folder, nil)
				require.ErrorIs(t, err, transport.Invalid, "the disk may still write")
				s.end()
				require.NoError(t, q.Close())
				q = openOn(t, d, nil)
				require.NoError(t, q.Close())
			})
		}
	}
}

// A stalled disk that recovers loses no message, and a withdrawn Put is not sent.
func TestAStalledDiskGoesOn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		s := newStall("write")
		d.on(s.hook)
		put(t, q, 0, 1)
		s.on.Store(true)
		results := make(chan error, 2)
		go func() { results <- q.Put(t.Context(), numbered(1)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := q.Put(ctx, numbered(99))
		require.ErrorIs(t, err, transport.Cancelled)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
		go func() { results <- q.Put(t.Context(), numbered(2)) }()
		synctest.Wait()
		s.end()
		require.NoError(t, <-results)
		require.NoError(t, <-results)
		require.Equal(t, ids(0, 3), take(t, q))
		require.NoError(t, q.Close())
	})
}

// Run ends with its context even if the disk does not answer a read. The next Run waits for the
// read and continues.
func TestAStalledReadDoesNotBlockRun(t *testing.T) {
	for _, op := range []string{"open", "read"} {
		testkit.Run(t, op, func(t *testing.T) {
			d := newDisk()
			q := openOn(t, d, nil)
			put(t, q, 0, 5)
			s := newStall(op)
			d.on(s.hook)
			s.on.Store(true)
			for range 2 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				require.Equal(t, time.Second, took(func() {
					require.ErrorIs(t, q.Run(ctx, &taker{}), context.DeadlineExceeded)
				}))
				cancel()
			}
			s.end()
			require.Equal(t, ids(0, 5), bodies(t, q))
			require.NoError(t, q.Close())
		})
	}
}

// Two fsyncs never run at the same time, because only one of them would report a failure. Every Put
// ends, even if the disk is full or failing or the file is dropped.
func TestFsyncsRunOneAtATime(t *testing.T) {
	for _, every := range []time.Duration{0, time.Millisecond, time.Second} {
		for _, failing := range []bool{false, true} {
			testkit.Run(t, fmt.Sprint("SyncEvery ", every, ", failing ", failing), func(t *testing.T) {
				d := newDisk()
				q := openOn(t, d, &outbox.Options{SyncEvery: every, MaxBytes: 1 << 20, Overflow: device.OverflowDropOldest})
				var running, calls atomic.Int32
				d.on(func(o op) error {
					if o.name != "sync" && o.name != "syncfolder" {
						return nil
					}
					if n := running.Add(1); n > 1 {
						t.Errorf("%d fsyncs at a time", n)
					}
					time.Sleep(3 * time.Millisecond)
					running.Add(-1)
					if failing && calls.Add(1)%3 == 0 {
						return context.DeadlineExceeded
					}
					return nil
				})
				const callers, each = 8, 40
				ended := make(chan struct{}, callers)
				for c := range callers {
					go func() {
						for n := range each {
							m := numbered(c*each + n)
							m.Body = make([]byte, 60_000)
							_ = q.Put(t.Context(), m)
							time.Sleep(time.Duration(n%3) * time.Millisecond)
						}
						ended <- struct{}{}
					}()
				}
				for n := range callers {
					select {
					case <-ended:
					case <-time.After(time.Minute):
						require.FailNow(t, "Put hangs", "%d of %d callers ended", n, callers)
					}
				}
				_ = q.Close()
			})
		}
	}
}

// Close returns after CloseTimeout even if OnFailed does not return.
func TestCloseIsBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		release := make(chan struct{})
		q := openOn(t, newDisk(), &outbox.Options{CloseTimeout: time.Second,
			OnFailed: func(*transport.Message, error) { <-release }})
		put(t, q, 0, 1)
		stop := start(q, &taker{})
		synctest.Wait()
		for range 2 {
			require.Equal(t, time.Second, took(func() { require.ErrorIs(t, q.Close(), transport.Timeout) }))
		}
		close(release)
		require.NoError(t, q.Close())
		require.Error(t, stop())
	})
}

// A file that cannot be created after a stall causes no error if no Put waits for it by then.
func TestAFailedCreateThatNobodyWaitsFor(t *testing.T) {
	for _, end := range []string{"the context ends", "Close"} {
		testkit.Run(t, end, func(t *testing.T) {
			d := newDisk()
			q := openOn(t, d, nil)
			release := make(chan struct{})
			d.on(func(o op) error {
				if o.name == "create" {
					<-release
					return syscall.EIO
				}
				return nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			result := make(chan error, 1)
			go func() { result <- q.Put(ctx, numbered(0)) }()
			synctest.Wait()
			closed := make(chan error, 1)
			if end == "Close" {
				go func() { closed <- q.Close() }()
				require.ErrorIs(t, <-result, transport.Closed)
			} else {
				require.ErrorIs(t, <-result, transport.Cancelled)
			}
			close(release)
			synctest.Wait()
			d.on(nil)
			if end != "Close" {
				put(t, q, 1, 2)
				go func() { closed <- q.Close() }()
			}
			require.NoError(t, <-closed)
		})
	}
}

// The cause of Run's context is never mistaken for an error of the disk.
func TestACauseThatLooksLikeADiskError(t *testing.T) {
	for i := 0; i < 200; i += 5 {
		testkit.Bubble(t, func(t *testing.T) {
			d := newDisk()
			q := openOn(t, d, nil)
			for n := range 5 {
				m := quarter(n)
				if i%2 == 1 {
					m.Body = make([]byte, 200<<10) // takes a second read
				}
				require.NoError(t, q.Put(t.Context(), m))
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			var reads atomic.Int32
			d.on(func(o op) error {
				if o.name == "read" && reads.Add(1) == 1 {
					cancel(fmt.Errorf("sensor: %w", syscall.EIO))
					for range i {
						runtime.Gosched()
					}
				}
				return nil
			})
			require.ErrorIs(t, q.Run(ctx, &taker{}), syscall.EIO)
			synctest.Wait()
			require.LessOrEqual(t, int(reads.Load()), 1+i%2, "it was read on")
			require.Equal(t, ids(0, 5), take(t, q))
			require.NoError(t, q.Close())
		})
	}
}

// A Put that gave up is not counted.
func TestPutsThatGaveUpAreNotCounted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		s := newStall("sync")
		d.on(s.hook)
		s.on.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, q.Put(ctx, numbered(0)), transport.ErrOutcomeUnknown)
		s.end()
		synctest.Wait()
		require.Zero(t, q.Stats().Put)
		require.EqualValues(t, 1, q.Stats().Waiting)
		require.NoError(t, q.Close())
	})
}
