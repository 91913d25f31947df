package hub_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

// since returns the events after the first n, and the total number.
// Every event is reported once and in order.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rec hubtest.Recorder
		h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: rec.Event})
		w := hubtest.Login(t, h, d)
		seen := 0
		reported := func(want ...string) {
			t.Helper()
			synctest.Wait()
			var got []string
			got, seen = rec.Since(seen)
			require.Equal(t, want, got)
		}
		reported("#1 dev-1 connected")

		w.Publish(1, "devices/dev-1/messages/events/%24.mid=a", "hello")
		require.EqualValues(t, 1, w.Acked())
		w.Send(hubtest.PublishBytes(0, 0, "devices/dev-1/messages/events/", ""))
		reported(`#1 dev-1 message "a", 5 bytes over MQTT`, "#1 dev-1 message without an id, 0 bytes over MQTT")

		require.Equal(t, []byte{0, 0, 0}, w.Subscribe(0, hubtest.TwinResults, hubtest.DesiredTopics, hubtest.MethodTopics))
		hubtest.Request(w, hubtest.TwinGet+"1", "")
		hubtest.Request(w, hubtest.TwinPatch+"2", `{"a":1}`)
		hubtest.Request(w, hubtest.TwinPatch+"3", `[]`)
		reported("#1 dev-1 twin get: status 200", "#1 dev-1 twin patch: status 204, version 2",
			"#1 dev-1 twin patch: status 400")
		hubtest.PatchDesired(t, h, "dev-1", `{"interval":60}`)
		require.NoError(t, h.PatchTags("dev-1", `{"site":"roof"}`))
		hubtest.Received(w)
		reported("dev-1 twin changed: desired, version 2", "dev-1 twin changed: tags")

		c := hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "reboot"})
		rid, _ := hubtest.Asked(w, "reboot")
		hubtest.AnswerCall(w, 202, rid, "")
		c.Result()
		hubtest.AnswerCall(w, 202, rid, "")
		reported(`dev-1 method "reboot" called`, `#1 dev-1 method "reboot" answered: status 202`,
			`#1 dev-1 method "reboot" answered: status 202, repeated`)
		c = hubtest.Call(t, h, "dev-1", hubdata.MethodCall{Name: "dance"})
		hubtest.Asked(w, "dance")
		require.Equal(t, 504101, c.Code())
		synctest.Wait()
		failed, n := rec.Since(seen)
		seen = n
		require.Equal(t, `dev-1 method "dance" called`, failed[0])
		require.Regexp(t, `^dev-1 method "dance" failed: .*504101`, failed[1])

		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{MessageID: "c-1"}))
		reported(`dev-1 C2D message "c-1" enqueued`)
		require.Equal(t, []byte{1}, w.Subscribe(1, hubtest.DeviceBound))
		hubtest.Ack(w, hubtest.ReadPublish(w).ID)
		reported(`#1 dev-1 C2D message "c-1" invisible`, `#1 dev-1 C2D message "c-1" completed`)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{}))
		require.Equal(t, 1, h.PurgeC2D(""))
		reported("dev-1 C2D message without an id enqueued", "#1 dev-1 C2D message without an id invisible",
			"#1 dev-1 C2D message without an id purged")

		p := hubtest.OverHTTP(t, h, d)
		l := hubtest.BeginUpload(p, "today.txt")
		hubtest.PutBlob(p, l, "sunny")
		require.Equal(t, 204, hubtest.EndUpload(p, hubtest.Ended(l.CorrelationID)).StatusCode)
		hubtest.BeginUpload(p, "late.txt")
		require.Equal(t, 1, h.ExpireUploads(""))
		reported("#2 dev-1 connected", `#2 dev-1 upload "dev-1/today.txt" running`,
			`#2 dev-1 upload "dev-1/today.txt" succeeded`,
			`#2 dev-1 upload "dev-1/late.txt" running`, `dev-1 upload "dev-1/late.txt" expired`)

		in := h.Inject(fault.Fault{Kind: fault.Quota, Device: "dev-1"})
		in.Remove()
		in.Remove() // has no effect
		h.Inject(fault.Fault{Kind: fault.DropConnect})
		reported("dev-1 fault Quota declared", "dev-1 fault Quota removed", "fault DropConnect declared")

		h.Reset()
		synctest.Wait()
		all, _ := rec.Since(seen)
		require.Contains(t, all, "#1 dev-1 disconnected: cut by a reset of the hub")
		require.Equal(t, "reset", all[len(all)-1])
	})
}

// The state changes of each C2D message are reported in order, even with many goroutines; and
// OnEvent may call the hub.
func TestEventsOfC2DMessagesAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		var mu sync.Mutex
		became := make(map[string][]string)
		var h *testbroker.Hub
		h, d := hubtest.NewHub(t, &testbroker.Options{C2D: testbroker.C2DOptions{Queue: n}, OnEvent: func(e event.Event) {
			if e.Kind != event.C2DChanged {
				return
			}
			h.CountC2D("", hubdata.C2DCompleted) // would deadlock if OnEvent were called with a lock held
			mu.Lock()
			defer mu.Unlock()
			became[e.Name] = append(became[e.Name], e.Detail)
		}})
		w := hubtest.Receiver(t, h, d, 1)
		for i := range n {
			go func() {
				if err := h.SendC2D("dev-1", hubdata.C2D{MessageID: fmt.Sprint(i)}); err != nil {
					t.Error(err)
				}
			}()
		}
		for range n {
			hubtest.Ack(w, hubtest.ReadPublish(w).ID)
		}
		synctest.Wait()
		require.Len(t, became, n)
		for id, states := range became {
			require.Equal(t, []string{"enqueued", "invisible", "completed"}, states, id)
		}
	})
}
