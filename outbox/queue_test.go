package outbox_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
)

func TestMessagesArriveInTheOrderOfPut(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		q := open(t, t.TempDir(), nil)
		put(t, q, 0, 500)
		c := newClient(t, hub, nil)
		stop := start(q, c)
		put(t, q, 500, 2000)
		require.NoError(t, q.Flush(t.Context()))
		require.Equal(t, ids(0, 2000), arrived(hub))
		require.Len(t, hub.Messages(), 2000)
		m := hub.Messages()[1234]
		require.Equal(t, `{"n":1234}`, string(m.Body))
		require.Equal(t, "1234", m.Properties[1].Value)
		require.Equal(t, "application/json", m.ContentType)
		s := q.Stats()
		require.Equal(t, outbox.Stats{Put: 2000, Acknowledged: 2000, Bytes: s.Bytes}, s)
		require.ErrorIs(t, stop(), context.Canceled)
		require.NoError(t, q.Close())
		require.NoError(t, c.Close())
	})
}

// A process ends without Close in the middle of an outage. The next one delivers the waiting
// messages, including those the client had.
func TestTheNextProcessContinues(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		folder := t.TempDir()
		const each = 300
		for life := range 5 {
			q := open(t, folder, nil)
			c := newClient(t, hub, nil)
			stop := start(q, c)
			put(t, q, life*each, life*each+each/2)
			if life%2 == 0 {
				require.NoError(t, q.Flush(t.Context()))
			}
			away := hub.Inject(fault.Fault{Kind: fault.Absent})
			hub.Drop(deviceID)
			put(t, q, life*each+each/2, (life+1)*each)
			time.Sleep(time.Second)
			require.NoError(t, c.Close())
			require.ErrorIs(t, stop(), transport.Closed)
			require.NotZero(t, q.Stats().Waiting)
			require.NoError(t, q.Close())
			away.Remove()
		}
		q := open(t, folder, nil)
		c := newClient(t, hub, nil)
		stop := start(q, c)
		require.NoError(t, q.Flush(t.Context()))
		require.Equal(t, ids(0, 5*each), arrived(hub))
		require.NoError(t, q.Close())
		require.ErrorIs(t, stop(), transport.Closed)
		require.NoError(t, c.Close())
	})
}

// Segments are deleted when all their messages are done, and the mark informs the next process.
func TestSegmentsWithoutWaitingMessagesAreDeleted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		folder := t.TempDir()
		q := open(t, folder, &outbox.Options{MaxBytes: 1 << 20})
		c := newClient(t, hub, nil)
		stop := start(q, c)
		body := make([]byte, 10_000)
		for range 1000 { // ten times the capacity
			require.NoError(t, q.Put(t.Context(), &transport.Message{Body: body}))
			require.LessOrEqual(t, q.Stats().Bytes, int64(1<<20))
		}
		require.NoError(t, q.Flush(t.Context()))
		require.NoError(t, q.Close())
		require.Error(t, stop())
		require.NoError(t, c.Close())
		require.Equal(t, 1000, hub.Len())
		require.LessOrEqual(t, len(segments(t, folder)), 1)

		q = open(t, folder, nil)
		require.Zero(t, q.Stats().Waiting)
		require.Empty(t, segments(t, folder))
		require.NoError(t, q.Close())
	})
}

func segments(t testing.TB, folder string) (paths []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.messages"))
	require.NoError(t, err)
	return paths
}

func TestAFullQueue(t *testing.T) {
	body := make([]byte, 50_000)
	fill := func(t *testing.T, overflow device.Overflow) (q *outbox.Queue, n int) {
		q = open(t, t.TempDir(), &outbox.Options{MaxBytes: 1 << 20, Overflow: overflow, SyncEvery: -1})
		for q.Stats().Bytes+50_100 <= 1<<20 {
			require.NoError(t, q.Put(t.Context(), &transport.Message{Body: body}))
			n++
		}
		return q, n
	}
	t.Run("Fail", func(t *testing.T) {
		q, _ := fill(t, device.OverflowFail)
		require.ErrorIs(t, q.Put(t.Context(), &transport.Message{Body: body}), transport.Dropped)
		require.NoError(t, q.Close())
	})
	testkit.Run(t, "Block", func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		q, n := fill(t, device.OverflowBlock)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := q.Put(ctx, &transport.Message{Body: body})
		require.ErrorIs(t, err, transport.Cancelled)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, errfilter.Retryable(err))
		blocked := make(chan error, 2)
		go func() { blocked <- q.Put(t.Context(), &transport.Message{Body: body}) }()
		synctest.Wait()
		require.Empty(t, blocked)
		c := newClient(t, hub, nil)
		stop := start(q, c)
		require.NoError(t, <-blocked)
		require.NoError(t, q.Flush(t.Context()))
		require.Equal(t, n+1, hub.Len())
		require.ErrorIs(t, stop(), context.Canceled)
		require.NoError(t, c.Close())
		for q.Stats().Bytes+50_100 <= 1<<20 {
			require.NoError(t, q.Put(t.Context(), &transport.Message{Body: body}))
		}
		go func() { blocked <- q.Put(t.Context(), &transport.Message{Body: body}) }()
		synctest.Wait()
		require.NoError(t, q.Close())
		require.ErrorIs(t, <-blocked, transport.Closed)
	})
	testkit.Run(t, "DropOldest", func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		folder := t.TempDir()
		q := open(t, folder, &outbox.Options{MaxBytes: 1 << 20, Overflow: device.OverflowDropOldest})
		const n = 100
		for i := range n {
			m := numbered(i)
			m.Body = body
			require.NoError(t, q.Put(t.Context(), m))
		}
		dropped := int(q.Stats().Dropped)
		require.Greater(t, dropped, 75)
		require.NoError(t, q.Close())
		q = open(t, folder, nil)
		require.Zero(t, q.Stats().Damaged)
		require.EqualValues(t, n-dropped, q.Stats().Waiting)
		c := newClient(t, hub, nil)
		stop := start(q, c)
		require.NoError(t, q.Flush(t.Context()))
		require.Equal(t, ids(dropped, n), arrived(hub))
		require.Error(t, stop())
		require.NoError(t, c.Close())
		require.NoError(t, q.Close())
	})
}

// DropOldest while Run reads: Run continues with the remaining messages.
func TestDropOldestDuringRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		q := open(t, t.TempDir(), &outbox.Options{MaxBytes: 1 << 20, Overflow: device.OverflowDropOldest, Window: 8})
		away := hub.Inject(fault.Fault{Kind: fault.Absent})
		c := newClient(t, hub, nil)
		stop := start(q, c)
		for i := range 300 {
			m := numbered(i)
			m.Body = make([]byte, 20_000)
			require.NoError(t, q.Put(t.Context(), m))
			synctest.Wait()
		}
		away.Remove()
		require.ErrorIs(t, q.Flush(t.Context()), transport.Dropped)
		require.NoError(t, q.Flush(t.Context()), "it was told")
		got := arrived(hub)
		require.Equal(t, ids(0, 8), got[:8], "the client had these")
		require.Equal(t, "299", got[len(got)-1])
		s := q.Stats()
		require.Zero(t, s.Waiting)
		require.EqualValues(t, 300, s.Dropped+s.Acknowledged-8)
		require.Error(t, stop())
		require.NoError(t, c.Close())
		require.NoError(t, q.Close())
	})
}

func TestAFinalFailureIsReportedToOnFailed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		var failed []string
		q := open(t, t.TempDir(), &outbox.Options{OnFailed: func(m *transport.Message, err error) {
			failed = append(failed, m.ID+" "+transport.KindOf(err).String())
		}})
		late := numbered(1)
		late.Expires = time.Now().Add(time.Minute)
		put(t, q, 0, 1)
		require.NoError(t, q.Put(t.Context(), late))
		put(t, q, 2, 3)
		time.Sleep(time.Hour)
		c := newClient(t, hub, nil)
		stop := start(q, c)
		require.NoError(t, q.Flush(t.Context()))
		require.Equal(t, []string{"1 message expired"}, failed)
		require.Equal(t, []string{"0", "2"}, arrived(hub))
		require.EqualValues(t, 1, q.Stats().Failed)
		require.Error(t, stop())
		require.NoError(t, c.Close())
		require.NoError(t, q.Close())
	})
}

// A client that would drop messages is refused; they stay in the files.
func TestAClientThatDropsIsRefused(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		for _, overflow := range []device.Overflow{device.OverflowFail, device.OverflowDropNewest,
			device.OverflowDropOldest} {
			hub.Inject(fault.Fault{Kind: fault.Absent, For: time.Minute})
			q := open(t, t.TempDir(), nil)
			put(t, q, 0, 10)
			c := newClient(t, hub, &device.Options{MaxMessages: 3, Overflow: overflow})
			require.ErrorIs(t, q.Run(t.Context(), c), transport.Invalid)
			require.GreaterOrEqual(t, q.Stats().Waiting, uint64(7))
			require.NoError(t, c.Close())
			require.NoError(t, q.Close())
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		hub.Inject(fault.Fault{Kind: fault.Absent})
		q := open(t, t.TempDir(), &outbox.Options{SyncEvery: time.Hour})
		put(t, q, 0, 100)
		c := newClient(t, hub, &device.Options{MaxMessages: 3})
		ran, flushed := make(chan error, 2), make(chan error, 1)
		go func() { ran <- q.Run(t.Context(), c) }()
		go func() { ran <- q.Run(t.Context(), c) }()
		go func() { flushed <- q.Flush(t.Context()) }()
		synctest.Wait()
		require.NoError(t, q.Close())
		require.NoError(t, q.Close())
		require.ErrorIs(t, <-flushed, transport.Closed)
		require.ErrorIs(t, <-ran, transport.Closed)
		require.ErrorIs(t, <-ran, transport.Closed)
		require.ErrorIs(t, q.Put(t.Context(), numbered(0)), transport.Closed)
		require.NoError(t, c.Close())
	})
}

func TestAFolderHasOneQueue(t *testing.T) {
	folder := t.TempDir()
	q := open(t, folder, nil)
	_, err := outbox.Open(folder, nil)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, folder)
	require.NoError(t, q.Close())
	q = open(t, folder, nil)
	require.NoError(t, q.Close())
}

func TestWrongInputIsNamed(t *testing.T) {
	for want, o := range map[string]*outbox.Options{
		"MaxBytes": {MaxBytes: 1000}, "Window": {Window: -1}, "Overflow": {Overflow: 99},
	} {
		_, err := outbox.Open(t.TempDir(), o)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, want)
	}
	_, err := outbox.Open("", nil)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "the folder's name is empty")
	q := open(t, t.TempDir(), nil)
	require.ErrorIs(t, q.Put(t.Context(), nil), transport.Invalid)
	require.ErrorIs(t, q.Put(t.Context(), &transport.Message{ID: strings.Repeat("x", 200)}), transport.Invalid)
	require.ErrorIs(t, q.Put(t.Context(), &transport.Message{Body: make([]byte, transport.MaxMessageSize+1)}),
		transport.TooLarge)
	// The largest possible message, including the lengths.
	many := new(transport.Message)
	for left := transport.MaxMessageSize; left >= 8; left -= len(many.Properties[len(many.Properties)-1].Name) {
		many.Properties = append(many.Properties, transport.Property{Name: "n" + strconv.Itoa(len(many.Properties))})
	}
	require.NoError(t, q.Put(t.Context(), many))
	require.NoError(t, q.Close())

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err = outbox.Open(file, nil)
	require.Error(t, err)
}

// A failed write loses its message and no other, whether or not the file can be truncated.
func TestAFailedWriteCostsItsMessage(t *testing.T) {
	for name, every := range map[string]time.Duration{"fsync each": 0, "fsync later": time.Millisecond, "no fsync": -1} {
		for _, cut := range []error{nil, syscall.EIO} {
			testkit.Run(t, fmt.Sprint(name, ", truncate: ", cut), func(t *testing.T) {
				d := newDisk()
				q := openOn(t, d, &outbox.Options{SyncEvery: every})
				put(t, q, 0, 10)
				time.Sleep(time.Second)
				broken := d.segments(folder)[0]
				d.on(func(o op) error {
					switch {
					case o.path != broken:
					case o.name == "write":
						// Only a part is written.
						d.edit(broken, func(b []byte) []byte { return append(b, make([]byte, o.n/2)...) })
						return syscall.EIO
					case o.name == "truncate":
						return cut
					}
					return nil
				})
				err := q.Put(t.Context(), numbered(10))
				require.ErrorIs(t, err, syscall.EIO)
				require.ErrorContains(t, err, "outbox")
				if cut == nil {
					d.on(nil)
				}
				require.EqualValues(t, 10, q.Stats().Waiting)
				put(t, q, 11, 20)
				require.EqualValues(t, 19, q.Stats().Put)
				require.NoError(t, q.Close())
				q = openOn(t, d, nil)
				require.Equal(t, append(ids(0, 10), ids(11, 20)...), bodies(t, q))
				require.NoError(t, q.Close())
			})
		}
	}
}

// With SyncEvery, messages are synced within that time, all together.
func TestSyncEvery(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		q := open(t, t.TempDir(), &outbox.Options{SyncEvery: time.Second})
		for range 3 {
			put(t, q, 0, 100)
			require.NotZero(t, q.Unsynced())
			time.Sleep(time.Second)
			synctest.Wait()
			require.Zero(t, q.Unsynced())
		}
		put(t, q, 0, 1)
		require.NoError(t, q.Close())
		require.Zero(t, q.Unsynced())
	})
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

// Messages that are done are released from memory.
func TestMessagesThatAreDoneLeaveMemory(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
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
