package testbroker_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// A busyDevice does everything that the hub logs.
type busyDevice struct {
	t *testing.T
	h *testbroker.Hub
	w *hubtest.Wire
	p *hubtest.Poster
	n int
}

func newBusyDevice(t *testing.T, h *testbroker.Hub, d hubdata.Device) *busyDevice {
	b := &busyDevice{t: t, h: h, w: hubtest.Login(t, h, d), p: hubtest.OverHTTP(t, h, d)}
	b.w.Subscribe(0, hubtest.MethodTopics, "$iothub/twin/res/#", "devices/dev-1/messages/devicebound/#")
	return b
}

// do does everything once, except two messages that conflict.
func (b *busyDevice) do() {
	b.t.Helper()
	b.n++
	for _, body := range []string{"a", "b"} {
		b.w.Publish(1, fmt.Sprintf("%s%%24.mid=%d", hubtest.Events, b.n), body)
		b.w.Acked()
	}
	c := hubtest.Call(b.t, b.h, "dev-1", hubdata.MethodCall{Name: "m"})
	rid, _ := hubtest.Asked(b.w, "m")
	hubtest.AnswerCall(b.w, 200, rid, "")
	c.Result()
	hubtest.Enqueue(b.t, b.h, "x")
	hubtest.ReadPublish(b.w)
	hubtest.Request(b.w, fmt.Sprint(hubtest.TwinGet, b.n), "")
	b.w.Publish(1, hubtest.FaultTopic("ShutDownAmqp", "", "0", "0"), "")
	b.w.Acked()
	l := hubtest.BeginUpload(b.p, fmt.Sprint(b.n))
	hubtest.PutBlob(b.p, l, "content")
	require.Equal(b.t, 204, hubtest.EndUpload(b.p, hubtest.Ended(l.CorrelationID)).StatusCode)
	other := fmt.Sprint("other-", b.n)
	_, err := b.h.AddDevice(other)
	require.NoError(b.t, err)
	require.NoError(b.t, b.h.SendC2D(other, hubdata.C2D{}))
	require.NoError(b.t, b.h.RemoveDevice(other))
}

// Every log has the newest entries, as many as Options.Keep; counts and waits include forgotten
// ones.
func TestKeep(t *testing.T) {
	for _, keep := range []int{1, 3, 16} {
		hubtest.InBubble(t, &testbroker.Options{Keep: keep}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			b := newBusyDevice(t, h, d)
			const n = 40
			for range n {
				b.do()
			}
			held := testbroker.Held(h)
			require.LessOrEqual(t, held["copies"], keep) // not more: a conflicting message is no copy
			delete(held, "copies")
			for what, n := range held {
				require.Equal(t, keep, n, what)
			}
			require.Len(t, held, 12)

			require.Equal(t, 2*n, h.Len())
			require.Equal(t, 2*n-keep, h.Forgotten())
			log := h.Messages()
			for i, m := range log {
				require.Equal(t, h.Forgotten()+i+1, m.Sequence)
			}
			require.Equal(t, fmt.Sprint(n), log[keep-1].MessageID)
			require.Len(t, h.Conflicts(), keep)
			require.Len(t, h.MethodLog(""), keep)
			require.Equal(t, hubdata.AnswerTaken, h.MethodAnswers("")[keep-1].Fate)
			require.Len(t, h.FaultMessages(), keep)
			require.Len(t, h.TwinLog("dev-1"), keep)
			require.Equal(t, fmt.Sprint(n), h.TwinLog("dev-1")[keep-1].RequestID)
			require.Equal(t, n, h.C2DLog("dev-1")[keep-1].Sequence)
			require.Len(t, h.C2DLog("dev-1"), keep)
			require.Equal(t, n, h.CountC2D("dev-1", hubdata.C2DCompleted))
			require.Equal(t, keep, h.CountC2D("", hubdata.C2DPurged), "of devices that were removed")
			require.Len(t, h.Uploads(), keep)
			require.Len(t, h.Blobs(), keep)
			_, ok := h.Blob(fmt.Sprint("dev-1/", n))
			require.True(t, ok)

			require.NoError(t, h.WaitMessages(t.Context(), 2*n))
			require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.C2DCompleted, n))
			require.NoError(t, h.WaitUploads(t.Context(), n))

			h.Reset()
			for what, n := range testbroker.Held(h) {
				require.Zero(t, n, what)
			}
			require.Zero(t, h.Len())
			require.Zero(t, h.Forgotten())
			newBusyDevice(t, h, d).do()
			require.NoError(t, h.WaitUploads(t.Context(), 1))
			require.Equal(t, 2, h.Len())
			require.Equal(t, 2, h.Messages()[len(h.Messages())-1].Sequence)
		})
	}
}

// A wait for a number of messages works even if the number exceeds Keep.
func TestWaitForMoreThanIsKept(t *testing.T) {
	hubtest.InBubble(t, &testbroker.Options{Keep: 2}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		start := time.Now()
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() {
			w := hubtest.Login(t, h, d)
			for i := range uint16(7) {
				time.Sleep(time.Second)
				w.Publish(i+1, hubtest.Events, "x")
				w.Acked()
			}
		})
		require.NoError(t, h.WaitMessages(t.Context(), 5))
		require.Equal(t, 5*time.Second, time.Since(start))
		require.NoError(t, h.Wait(t.Context(),
			func(log []hubdata.Message) bool { return len(log) == 2 && log[1].Sequence == 7 }))
		require.Equal(t, 7*time.Second, time.Since(start))
	})
}

// A message is compared with the kept ones: the first of its id, or a copy of it.
func TestConflictsOfWhatIsKept(t *testing.T) {
	for _, c := range []struct {
		messages string // id and body of each message
		want     string // the conflicts
	}{
		{"aX aY", "XY"},
		{"aX b_ c_ aY", "XY"},
		{"aX b_ c_ d_ aY", ""},
		{"aX b_ c_ d_ aY aX", "YX"}, // Y is the first, because X is forgotten
		{"aX b_ aX c_ d_ aY", "XY"}, // the copy of X is kept
		{"aX aX aX b_ aY b_ c_", "XY"},
		{"aX aX b_ c_ d_ aY aY", ""},
		{"aX aY aZ aX", "XY XZ"}, // X is the first again, because the others differed
	} {
		hubtest.InBubble(t, &testbroker.Options{Keep: 3}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			w := hubtest.Login(t, h, d)
			for m := range strings.FieldsSeq(c.messages) {
				w.Publish(1, hubtest.Events+"%24.mid="+m[:1], m[1:])
				w.Acked()
			}
			var got []string
			for _, p := range h.Conflicts() {
				got = append(got, string(p.First.Body)+string(p.Second.Body))
			}
			require.Equal(t, c.want, strings.Join(got, " "), c.messages)
		})
	}
}

// The log passed to Wait does not change while the hub forgets messages.
func TestForgettingWhileOthersRead(t *testing.T) {
	h, d := hubtest.NewHub(t, &testbroker.Options{Keep: 5})
	w := hubtest.Login(t, h, d)
	var wg sync.WaitGroup
	const n = 300
	for i := range n {
		w.Publish(1, hubtest.Events, fmt.Sprint(i+1))
		w.Acked()
		require.NoError(t, h.Wait(t.Context(), func(log []hubdata.Message) bool {
			wg.Go(func() {
				for range 20 {
					for k, m := range log {
						if want := i + 2 - len(log) + k; m.Sequence != want || string(m.Body) != fmt.Sprint(want) {
							t.Errorf("message %d of the log is %d: %s", want, m.Sequence, m.Body)
						}
					}
					runtime.Gosched()
				}
			})
			return true
		}))
	}
	wg.Wait()
}

// The hub's memory is bounded by Keep, and each entry is moved only a few times.
func TestMemoryIsBounded(t *testing.T) {
	h, d := hubtest.NewHub(t, &testbroker.Options{Keep: 50})
	w := hubtest.Login(t, h, d)
	body := strings.Repeat("x", 64<<10)
	send := func(n int) uint64 {
		for range n {
			w.Publish(1, hubtest.Events, body)
			w.Acked()
		}
		var m runtime.MemStats
		for range 3 { // the second empties the pools
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := send(0)
	after := send(1000) // 64 MB
	require.Less(t, int64(after)-int64(before), int64(3*50*len(body)))
}

// A call forgotten while open continues, and its data is dropped when it has ended.
func TestForgottenCalls(t *testing.T) {
	hubtest.InBubble(t, &testbroker.Options{Keep: 1}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Subscribe(0, hubtest.MethodTopics)
		first := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "m"})
		one, _ := hubtest.Asked(w, "m")
		second := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "m"})
		two, _ := hubtest.Asked(w, "m")
		require.Len(t, h.MethodLog(""), 1)
		require.Equal(t, 2, testbroker.Held(h)["request ids"])
		hubtest.AnswerCall(w, 200, one, "1")
		require.Equal(t, "1", string(first.Result().Payload))
		require.Equal(t, 1, testbroker.Held(h)["request ids"])
		hubtest.AnswerCall(w, 200, one, "1")
		hubtest.Quiet(w)
		require.Equal(t, []string{"unknown"}, hubtest.Fates(h))
		hubtest.AnswerCall(w, 200, two, "2")
		require.Equal(t, "2", string(second.Result().Payload))
		hubtest.AnswerCall(w, 200, two, "2")
		hubtest.Quiet(w)
		require.Equal(t, []string{"repeated"}, hubtest.Fates(h))
	})
}

// A C2D message forgotten while waiting is still delivered and counted.
func TestForgottenC2DMessages(t *testing.T) {
	hubtest.InBubble(t, &testbroker.Options{Keep: 2}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		hubtest.Enqueue(t, h, "1", "2", "3", "4", "5")
		require.Equal(t, 5, h.CountC2D("dev-1", hubdata.C2DEnqueued))
		require.Equal(t, 4, h.C2DLog("dev-1")[0].Sequence)
		w := hubtest.Receiver(t, h, d, 1)
		for _, want := range []string{"1", "2", "3", "4", "5"} {
			c := hubtest.ReadPublish(w)
			require.Equal(t, want, c.Body)
			hubtest.Ack(w, c.ID)
		}
		require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.C2DCompleted, 5))
	})
}

// A forgotten upload is over. Its file is dropped too, unless a newer upload has the same name.
func TestForgottenUploads(t *testing.T) {
	hubtest.InBubble(t, &testbroker.Options{Keep: 2}, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.OverHTTP(t, h, d)
		header := []string{"x-ms-blob-type", "BlockBlob"}
		old := hubtest.BeginUpload(p, "a")
		hubtest.PutBlob(p, old, "old")
		again := hubtest.BeginUpload(p, "a")
		hubtest.PutBlob(p, again, "new")
		last := hubtest.BeginUpload(p, "b") // forgets old
		require.Equal(t, 403, hubtest.PutUpload(p, old, "", "old", header...).StatusCode)
		require.Equal(t, 400, hubtest.EndUpload(p, hubtest.Ended(old.CorrelationID)).StatusCode)
		require.Equal(t, []string{"dev-1/a"}, h.Blobs())
		require.Equal(t, 204, hubtest.EndUpload(p, hubtest.Ended(again.CorrelationID)).StatusCode)

		slow := h.Inject(fault.Fault{Kind: fault.SlowBlob, Delay: time.Minute, Times: 3})
		statuses := make(chan int)
		for _, more := range []struct {
			query  string
			header []string
		}{{"", header}, {"&comp=block&blockid=YQ%3D%3D", nil}, {"&comp=blocklist", nil}} {
			go func() { statuses <- hubtest.PutUpload(p, last, more.query, "<BlockList/>", more.header...).StatusCode }()
		}
		require.NoError(t, slow.WaitFired(t.Context(), 3))
		hubtest.BeginUpload(p, "c")
		hubtest.BeginUpload(p, "d") // forgets last, whose URI was valid
		for range 3 {
			require.Equal(t, 403, <-statuses)
		}
		require.Empty(t, h.Blobs())
		require.Equal(t, 2, testbroker.Held(h)["files"], "those that may come")
	})
}
