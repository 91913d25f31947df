package outbox_test

import (
	"context"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

// Messages that the client still has when Run's context ends have no result: they wait for the next
// Run.
func TestMessagesInFlightSurviveTheEndOfRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		away := hub.Inject(fault.Fault{Kind: fault.Absent})
		failed := 0
		q := open(t, t.TempDir(), &outbox.Options{OnFailed: func(*transport.Message, error) { failed++ }})
		put(t, q, 0, 20)
		for _, end := range []func(context.Context) (context.Context, context.CancelFunc){
			context.WithCancel,
			func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Minute)
			},
		} {
			c := newClient(t, hub, nil)
			ctx, cancel := end(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- q.Run(ctx, c) }()
			time.Sleep(30 * time.Second)
			if _, ok := ctx.Deadline(); !ok {
				cancel()
			}
			require.ErrorIs(t, <-ran, ctx.Err())
			cancel()
			s := q.Stats()
			require.Zero(t, s.Failed)
			require.EqualValues(t, 20, s.Waiting)
			require.NoError(t, c.Close())
		}
		require.Zero(t, failed)
		away.Remove()
		require.Equal(t, ids(0, 20), bodies(t, q))
		require.NoError(t, q.Close())
	})
}

// Stalled grows while the same message is the first: from its Put if none waited then, and after a
// restart from Open.
func TestStalledIsHowLongTheFirstMessageWaits(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		folder := t.TempDir()
		q := open(t, folder, nil)
		time.Sleep(time.Hour)
		require.Zero(t, q.Stats().Stalled, "none waits")
		put(t, q, 0, 1)
		time.Sleep(time.Minute)
		put(t, q, 1, 2)
		require.Equal(t, time.Minute, q.Stats().Stalled)
		require.NoError(t, q.Close())
		q = open(t, folder, nil)
		time.Sleep(time.Second)
		require.Equal(t, time.Second, q.Stats().Stalled)
		require.Len(t, bodies(t, q), 2)
		require.Zero(t, q.Stats().Stalled)
		require.NoError(t, q.Close())
	})
}

// A segment is deleted when its last message is done, and not before.
func TestASegmentStaysForItsLastMessage(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20})
		for n := range 8 { // two segments
			require.NoError(t, q.Put(t.Context(), quarter(n)))
		}
		first := d.segments(folder)[0]
		require.ErrorIs(t, ended(t, q, &taker{most: 3}), errEnough)
		q.Idle()
		require.True(t, d.Exists(first))
		again := openOn(t, d.kill(), nil)
		require.Equal(t, ids(3, 8), take(t, again))
		require.ErrorIs(t, ended(t, q, &taker{most: 1}), errEnough)
		q.Idle()
		require.False(t, d.Exists(first))
		require.Equal(t, ids(4, 8), take(t, q))
		require.NoError(t, q.Close())
	})
}

// An OnFailed that panics or ends its goroutine ends Run with an error that says so. Its message
// counts as reported, so the next Run starts behind it.
func TestOnFailedThatDoesNotReturn(t *testing.T) {
	for want, end := range map[string]func(){
		"runtime.Goexit":    runtime.Goexit,
		"panicked: too bad": func() { panic("too bad") },
	} {
		testkit.Run(t, want, func(t *testing.T) {
			told := []string{}
			q := openOn(t, newDisk(), &outbox.Options{OnFailed: func(m *transport.Message, _ error) {
				told = append(told, m.ID)
				end()
			}})
			put(t, q, 0, 3)
			for n := range 3 {
				ran := make(chan error, 1)
				go func() { ran <- ended(t, q, &taker{}) }()
				synctest.Wait()
				require.Len(t, ran, 1, "Run stands still")
				require.ErrorContains(t, <-ran, want)
				require.Equal(t, ids(0, n+1), told)
			}
			require.Zero(t, q.Stats().Waiting)
			require.EqualValues(t, 3, q.Stats().Failed)
			require.NoError(t, q.Close())
		})
	}
}

// A file that cannot be read for a reason other than its sectors ends Run with an error. The next
// Run continues.
func TestRunReportsFilesThatCannotBeRead(t *testing.T) {
	for _, op := range []string{"open", "read"} {
		testkit.Bubble(t, func(t *testing.T) {
			d := newDisk()
			q := openOn(t, d, nil)
			put(t, q, 0, 5)
			d.on(failing(op, syscall.EMFILE))
			err := ended(t, q, &taker{})
			require.ErrorIs(t, err, syscall.EMFILE)
			require.ErrorContains(t, err, d.segments(folder)[0])
			require.EqualValues(t, 5, q.Stats().Waiting)
			d.on(nil)
			require.Equal(t, ids(0, 5), take(t, q))
			require.NoError(t, q.Close())
		})
	}
}

// failing is a hook that fails the ops with the given name.
func failing(name string, err error) func(op) error {
	return func(o op) error {
		if o.name == name {
			return err
		}
		return nil
	}
}

// A file that cannot be removed, as on Windows while it is being read, is removed later.
func TestAFileThatCannotBeRemovedYet(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20})
		d.on(failing("remove", syscall.EACCES))
		for n := range 12 { // three segments
			require.NoError(t, q.Put(t.Context(), quarter(n)))
		}
		require.Len(t, take(t, q), 12)
		q.Idle()
		require.Len(t, d.segments(folder), 3)
		d.on(nil)
		for n := range 4 {
			require.NoError(t, q.Put(t.Context(), quarter(n)))
		}
		require.Len(t, take(t, q), 4)
		q.Idle()
		require.Len(t, d.segments(folder), 1)
		require.NoError(t, q.Close())
	})
}

// Put returns a failed fsync of the folder: the message would be lost with the file's name.
func TestAFailedFsyncOfTheFolder(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, nil)
		d.on(failing("syncfolder", syscall.EIO))
		require.ErrorIs(t, q.Put(t.Context(), numbered(0)), syscall.EIO)
		d.on(nil)
		put(t, q, 1, 2)
		require.Equal(t, ids(1, 2), take(t, q), "the first one's Put has failed, and no other message is in its file")
		require.NoError(t, q.Close())
	})
}

// DropOldest also drops the active file, even if Puts wait for its fsync.
func TestDropOldestOfTheFileThatIsWrittenTo(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		d.on(onSync(func() error { time.Sleep(time.Second); return nil }))
		q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20, Overflow: device.OverflowDropOldest})
		results := make(chan error, 20)
		for range 20 {
			go func() {
				m := numbered(0)
				m.Body = make([]byte, 200_000)
				results <- q.Put(t.Context(), m)
			}()
		}
		for n := range 20 {
			select {
			case err := <-results:
				require.NoError(t, err)
			case <-time.After(time.Hour):
				require.FailNow(t, "Put hangs", "after %d", n)
			}
		}
		s := q.Stats()
		require.EqualValues(t, 20, s.Put)
		require.EqualValues(t, 20, s.Dropped+s.Waiting)
		require.LessOrEqual(t, s.Bytes, int64(1<<20))
		require.NoError(t, q.Close())
	})
}

// DropOldest may delete a file that Run is about to open. Run continues with the next one.
func TestDropOldestOfTheFileThatRunOpens(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{MaxBytes: 1 << 20, Overflow: device.OverflowDropOldest})
		for n := range 8 {
			require.NoError(t, q.Put(t.Context(), quarter(n)))
		}
		release := make(chan struct{})
		var opens atomic.Int32
		first := d.segments(folder)[0]
		d.on(func(o op) error {
			if o.name == "open" && o.path == first && opens.Add(1) == 1 {
				<-release
			}
			return nil
		})
		k := &taker{}
		stop := start(q, k)
		synctest.Wait()
		for n := 8; d.Exists(first); n++ {
			require.Less(t, n, 200)
			require.NoError(t, q.Put(t.Context(), quarter(n)))
			synctest.Wait()
		}
		close(release)
		require.NoError(t, flushSoon(t, q))
		require.ErrorIs(t, stop(), context.Canceled)
		s := q.Stats()
		require.NotZero(t, s.Dropped)
		require.Zero(t, s.Damaged)
		require.EqualValues(t, s.Put, s.Failed+s.Dropped)
		require.NoError(t, q.Close())
	})
}

// A client that panics leaks no goroutine of Run, and the next Run continues.
func TestAClientThatPanics(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) { // reports leaked goroutines
		q := openOn(t, newDisk(), nil)
		put(t, q, 0, 3)
		require.Panics(t, func() { _ = q.Run(t.Context(), panicking{}) })
		require.Equal(t, ids(0, 3), take(t, q))
		require.NoError(t, q.Close())
	})
}

type panicking struct{ sending }

func (panicking) Enqueue(context.Context, *transport.Message, *device.Receipt) error {
	panic("too bad")
}

// A Flush that panics or ends its goroutine ends Run with an error that says so, at its beginning
// and later, and the next Run continues.
func TestAFlushThatDoesNotReturn(t *testing.T) {
	for want, end := range map[string]func(){
		"runtime.Goexit":                 runtime.Goexit,
		"panicked: too bad":              func() { panic("too bad") },
		"panicked: " + errEnough.Error(): func() { panic(errEnough) }, // of a Kind that is no reason to stop
	} {
		for _, good := range []int{0, 1} {
			testkit.Run(t, want, func(t *testing.T) {
				q := openOn(t, newDisk(), nil)
				put(t, q, 0, 3)
				ran := make(chan error, 1)
				go func() { ran <- ended(t, q, &unflushable{good: good, end: end}) }()
				synctest.Wait()
				require.Len(t, ran, 1, "Run goes on")
				err := <-ran
				require.ErrorContains(t, err, "outbox.Client.Flush")
				require.ErrorContains(t, err, want)
				require.Equal(t, ids(0, 3), take(t, q))
				require.NoError(t, q.Close())
			})
		}
	}
}

// The methods of an error may panic, as those of a nil pointer do.
func TestAFlushWhoseErrorPanics(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		q := openOn(t, newDisk(), nil)
		put(t, q, 0, 3)
		require.ErrorContains(t, q.Run(t.Context(), nilFlush{}), "an error whose Error method panics")
		require.Equal(t, ids(0, 3), take(t, q))
		require.NoError(t, q.Close())
	})
}

type nilFlush struct{}

func (nilFlush) Enqueue(context.Context, *transport.Message, *device.Receipt) error { return errEnough }
func (nilFlush) Flush(context.Context) error                                        { return (*os.PathError)(nil) }

// unflushable is a client without room. Its Flush returns a number of times.
type unflushable struct {
	good int
	end  func()
}

func (*unflushable) Enqueue(ctx context.Context, _ *transport.Message, _ *device.Receipt) error {
	<-ctx.Done()
	return ctx.Err()
}

func (u *unflushable) Flush(context.Context) error {
	if u.good--; u.good < 0 {
		u.end()
	}
	return nil
}

func TestRunAfterClose(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		q := open(t, t.TempDir(), nil)
		require.NoError(t, q.Close())
		ran := make(chan error, 1)
		go func() { ran <- q.Run(t.Context(), nil) }()
		synctest.Wait()
		require.Len(t, ran, 1, "Run hangs")
		require.ErrorIs(t, <-ran, transport.Closed)
	})
}
