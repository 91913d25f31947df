package hub_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestC2DMessageIsDeliveredAndCompleted(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Receiver(t, h, d, 1)
		start := time.Now()
		sent := hubdata.C2D{
			MessageID: "c2d-7", CorrelationID: "op-3", UserID: "me", ContentType: "application/json;charset=utf-8",
			ContentEncoding: "utf-8",
			Ack:             "full", Expiry: time.Date(2000, 1, 1, 0, 30, 0, 1200, time.FixedZone("", 600)),
			Properties: []hubdata.Property{{Name: "color", Value: "blue"}, {Name: "a b&=", Value: "ü/+#%"},
				{Name: "z", Value: ""}}, Body: []byte("hello"),
		}
		require.NoError(t, h.SendC2D("dev-1", sent))
		topic := "devices/dev-1/messages/devicebound/%24.to=%2Fdevices%2Fdev-1%2Fmessages%2FdeviceBound" +
			"&%24.mid=c2d-7&%24.cid=op-3&%24.uid=me&%24.ct=application%2Fjson%3Bcharset%3Dutf-8&%24.ce=utf-8" +
			"&%24.exp=2000-01-01T00%3A20%3A00.0000012Z&iothub-ack=full&color=blue&a%20b%26%3D=%C3%BC%2F%2B%23%25&z="
		require.Equal(t, hubtest.Packet{QoS: 1, Topic: topic, ID: 1, Body: "hello"}, hubtest.ReadPublish(w))

		want := hubdata.C2DRecord{
			DeviceID: "dev-1", Sequence: 1, C2D: sent, Topic: topic, State: hubdata.C2DInvisible, Deliveries: 1, Connection: 1,
			PacketID: 1, Enqueued: start,
		}
		require.Equal(t, []hubdata.C2DRecord{want}, h.C2DLog("dev-1"))
		time.Sleep(time.Second)
		hubtest.Ack(w, 1)
		require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.C2DCompleted, 1))
		want.State, want.Ended, want.Feedback = hubdata.C2DCompleted, start.Add(time.Second), "Success"
		require.Equal(t, []hubdata.C2DRecord{want}, h.C2DLog(""))
		hubtest.Quiet(w)
	})
}

func TestEmptyC2DMessage(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Receiver(t, h, d, 1)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{}))
		require.Equal(t, "devices/dev-1/messages/devicebound/%24.to=%2Fdevices%2Fdev-1%2Fmessages%2FdeviceBound",
			hubtest.ReadPublish(w).Topic,
			"the bag is never empty")
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Extra: "&nothing&empty=/"}))
		require.Equal(t,
			"devices/dev-1/messages/devicebound/%24.to=%2Fdevices%2Fdev-1%2Fmessages%2FdeviceBound&nothing&empty=/",
			hubtest.ReadPublish(w).Topic)
	})
}

func TestInvalidC2DMessagesAreRefused(t *testing.T) {
	h, _ := hubtest.NewHub(t, nil)
	for name, c := range map[string]hubdata.C2D{
		"too large":          {Body: make([]byte, hubdata.MaxC2D+1)},
		"long id":            {MessageID: strings.Repeat("x", 129)},
		"unknown ack":        {Ack: "maybe"},
		"nameless":           {Properties: []hubdata.Property{{Value: "x"}}},
		"topic that is long": {Properties: []hubdata.Property{{Name: "x", Value: strings.Repeat("/", 1<<15)}}},
	} {
		require.Error(t, h.SendC2D("dev-1", c), name)
	}
	require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: make([]byte, hubdata.MaxC2D)}))
	require.ErrorIs(t, h.SendC2D("dev-2", hubdata.C2D{}), testbroker.ErrNotFound)
	require.ErrorIs(t, h.SendC2D("dev-1/mod", hubdata.C2D{}), testbroker.ErrNotFound)
	require.NoError(t, h.Close())
	require.ErrorIs(t, h.SendC2D("dev-1", hubdata.C2D{}), testbroker.ErrClosed)
	require.Equal(t, "C2DState(0)", hubdata.C2DState(0).String())
	require.Equal(t, "C2DState(99)", hubdata.C2DState(99).String())
	require.Zero(t, h.CountC2D("", 99))
}

func TestQueueOfC2DMessagesIsBounded(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		for range 50 {
			hubtest.Enqueue(t, h, "x")
		}
		require.ErrorIs(t, h.SendC2D("dev-1", hubdata.C2D{}), testbroker.ErrQueueFull)
		w := hubtest.Receiver(t, h, d, 1)
		require.ErrorIs(t, h.SendC2D("dev-1", hubdata.C2D{}), testbroker.ErrQueueFull,
			"what is not acknowledged still counts")
		hubtest.Ack(w, hubtest.ReadPublish(w).ID)
		require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.C2DCompleted, 1))
		hubtest.Enqueue(t, h, "x")
		require.Equal(t, 50, h.PurgeC2D("dev-1"))
		require.Equal(t, 50, h.CountC2D("", hubdata.C2DPurged))
	})
}

func TestWindowOfUnacknowledgedC2DMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{C2D: testbroker.C2DOptions{Window: 3}})
		w := hubtest.Receiver(t, h, d, 1)
		hubtest.Enqueue(t, h, "a", "b", "c", "d", "e")
		require.Equal(t, []string{"a", "b", "c"}, hubtest.ReadBodies(w, 3))
		hubtest.Quiet(w)
		hubtest.Ack(w, 2)
		require.Equal(t, "d", hubtest.ReadPublish(w).Body)
		hubtest.Ack(w, 2) // a repeated PUBACK, and one without a message
		hubtest.Ack(w, 77)
		hubtest.Quiet(w)
		hubtest.Ack(w, 1)
		require.Equal(t, "e", hubtest.ReadPublish(w).Body)
		require.Equal(t, []string{"completed 1", "completed 1", "invisible 1", "invisible 1", "invisible 1"},
			hubtest.States(h))
	})
}

func TestC2DMessagesWithQoS0(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Receiver(t, h, d, 0)
		for range 50 {
			hubtest.Enqueue(t, h, "x")
			require.Equal(t,
				hubtest.Packet{Topic: "devices/dev-1/messages/devicebound/%24.to=%2Fdevices%2Fdev-1%2Fmessages%2FdeviceBound",
					Body: "x"},
				hubtest.ReadPublish(w))
		}
		require.Equal(t, 50, h.CountC2D("dev-1", hubdata.C2DCompleted))
		hubtest.Quiet(w)
	})
}

func TestC2DMessagesAreForSubscribersOnly(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, "$iothub/twin/res/#")
		hubtest.Enqueue(t, h, "a", "b")
		hubtest.Quiet(w)
		require.Equal(t, []byte{1}, w.Subscribe(1, hubtest.DeviceBound))
		require.Equal(t, []string{"a", "b"}, hubtest.ReadBodies(w, 2))

		w.Send(hubtest.Frame(0xa2, []byte{0, 9}, hubtest.Str(hubtest.DeviceBound)))
		w.Expect(hubtest.Unsuback)
		hubtest.Enqueue(t, h, "c")
		hubtest.Ack(w, 1)
		hubtest.Quiet(w)
		require.Equal(t, []string{"completed 1", "invisible 1", "enqueued 0"}, hubtest.States(h),
			"what was under way can be acknowledged")
		w.Subscribe(1, hubtest.DeviceBound)
		require.Equal(t, "c", hubtest.ReadPublish(w).Body)
	})
}

func TestC2DMessagesToModules(t *testing.T) {
	for _, filter := range []string{"devices/dev-1/modules/mod-1/messages/devicebound/#",
		"devices/dev-1/modules/mod-1/#"} {
		hubtest.RunInBubble(t, filter, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
			device, module := hubtest.Receiver(t, h, d, 1), hubtest.Login(t, h, mod)
			require.Equal(t, []byte{1, 0}, append(module.Subscribe(1, filter), module.Subscribe(0,
				"devices/dev-1/modules/mod-1/inputs/#")...))
			require.NoError(t, h.SendC2D("dev-1/mod-1", hubdata.C2D{Body: []byte("x")}))
			c := hubtest.ReadPublish(module)
			require.Equal(t,
				"devices/dev-1/modules/mod-1/messages/devicebound/"+
					"%24.to=%2Fdevices%2Fdev-1%2Fmodules%2Fmod-1%2Fmessages%2FdeviceBound", c.Topic)
			hubtest.Quiet(device)
			hubtest.Ack(module, c.ID)
			require.NoError(t, h.WaitC2D(t.Context(), "dev-1/mod-1", hubdata.C2DCompleted, 1))
			require.Equal(t, "mod-1", h.C2DLog("dev-1")[0].ModuleID)
		})
	}
}

func TestTheHigherQoSOfTwoFiltersHolds(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		mod := hubtest.AddModule(t, h, "dev-1", "m")
		w := hubtest.Login(t, h, mod)
		w.Subscribe(1, "devices/dev-1/modules/m/#")
		w.Subscribe(0, "devices/dev-1/modules/m/messages/devicebound/#")
		require.NoError(t, h.SendC2D("dev-1/m", hubdata.C2D{}))
		require.Equal(t, byte(1), hubtest.ReadPublish(w).QoS)
		hubtest.Quiet(w)
	})
}

func TestC2DMessageIsDeliveredAgainAfterItsLock(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Receiver(t, h, d, 1)
		start := time.Now()
		hubtest.Enqueue(t, h, "a", "b")
		require.Equal(t, []string{"a", "b"}, hubtest.ReadBodies(w, 2))
		hubtest.Ack(w, 2)
		c := hubtest.ReadPublish(w)
		require.Equal(t, time.Minute, time.Since(start))
		require.True(t, c.DUP)
		require.Equal(t, uint16(1), c.ID, "the packet id stays")
		hubtest.Ack(w, 1)
		require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.C2DCompleted, 2))
		require.Equal(t, []string{"completed 2", "completed 1"}, hubtest.States(h))
	})
}

func TestC2DMessageIsDeliveredAgainToTheNextConnection(t *testing.T) {
	for name, c := range map[string]struct {
		end    func(t *testing.T, h *testbroker.Hub, w *hubtest.Wire)
		missed bool
	}{
		"cut by the hub":  {func(t *testing.T, h *testbroker.Hub, w *hubtest.Wire) { h.Drop("") }, false},
		"client vanishes": {func(t *testing.T, h *testbroker.Hub, w *hubtest.Wire) { w.Conn.Close() }, false},
		"client disconnects": {func(t *testing.T, h *testbroker.Hub,
			w *hubtest.Wire) {
			w.Send([]byte{0xe0, 0})
			w.End()
		}, false},
		"newer connection": {func(*testing.T, *testbroker.Hub, *hubtest.Wire) {}, true},
		"half-open for some time": {func(t *testing.T, h *testbroker.Hub, w *hubtest.Wire) {
			h.Inject(fault.Fault{Kind: fault.HalfOpen, For: time.Second})
			time.Sleep(2 * time.Second)
		}, true},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			w := hubtest.Receiver(t, h, d, 1)
			hubtest.Enqueue(t, h, "a", "b", "c")
			require.Equal(t, []string{"a", "b", "c"}, hubtest.ReadBodies(w, 3))
			hubtest.Ack(w, 2)
			synctest.Wait()
			c.end(t, h, w)
			synctest.Wait()
			hubtest.Enqueue(t, h, "d")
			w = hubtest.Receiver(t, h, d, 1)
			got := hubtest.ReadBodies(w, 3)
			if c.missed { // the hub has sent it on the old connection
				require.Equal(t, "+d", got[2])
				got[2] = strings.TrimPrefix(got[2], "+")
			}
			require.Equal(t, []string{"+a", "+c", "d"}, got)
		})
	}
}

func TestC2DMessageIsDeadLettered(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Receiver(t, h, d, 1)
		start := time.Now()
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "negative", Body: []byte("x")}))
		w.Conn.SetDeadline(time.Now().Add(time.Hour))
		for n := range 10 {
			require.Equal(t, n > 0, hubtest.ReadPublish(w).DUP)
			require.Equal(t, time.Duration(n)*time.Minute, time.Since(start))
			w.Ping()
		}
		require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.C2DDeadLettered, 1))
		require.Equal(t, 10*time.Minute, time.Since(start))
		require.Equal(t, []string{"dead-lettered 10"}, hubtest.States(h))
		require.Equal(t, "DeliveryCountExceeded", h.C2DLog("")[0].Feedback)
		w = hubtest.Receiver(t, h, d, 1)
		hubtest.Quiet(w)
	})
}

func TestC2DMessageExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{C2D: testbroker.C2DOptions{TTL: 10 * time.Minute, MaxDeliveries: 100}})
		start := time.Now()
		hubtest.Enqueue(t, h, "short of time")
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Expiry: start.Add(20 * time.Minute), Ack: "full"}))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Expiry: start.Add(-time.Second)}))
		require.Equal(t, []string{"enqueued 0", "enqueued 0", "expired 0"}, hubtest.States(h))
		require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.C2DExpired, 2))
		require.Equal(t, 10*time.Minute, time.Since(start), "without a connection")
		require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.C2DExpired, 3))
		require.Equal(t, 20*time.Minute, time.Since(start))
		require.Equal(t, "Expired", h.C2DLog("")[1].Feedback)

		w := hubtest.Receiver(t, h, d, 1)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Expiry: time.Now().Add(90 * time.Second)}))
		require.False(t, hubtest.ReadPublish(w).DUP)
		time.Sleep(30 * time.Second)
		w.Ping()
		require.True(t, hubtest.ReadPublish(w).DUP)
		time.Sleep(45 * time.Second)
		require.Equal(t, "invisible 2", hubtest.States(h)[3], "a lock outlives the expiry")
		w.Ping()
		require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.C2DExpired, 4))
		hubtest.Quiet(w)
	})
}

func TestFeedback(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		for _, ack := range []string{"", "none", "positive", "negative", "full"} {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: ack}))
		}
		h.PurgeC2D("")
		w := hubtest.Receiver(t, h, d, 0)
		for _, ack := range []string{"", "none", "positive", "negative", "full"} {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: ack}))
		}
		hubtest.ReadBodies(w, 5)
		var got []string
		for _, r := range h.C2DLog("") {
			got = append(got, r.Feedback)
		}
		require.Equal(t, []string{"", "", "", "Purged", "Purged", "", "", "Success", "", "Success"}, got)
	})
}

func TestLatePubackFindsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{C2D: testbroker.C2DOptions{Window: 1, Lock: 10 * time.Second}})
		w := hubtest.Receiver(t, h, d, 1)
		hubtest.Enqueue(t, h, "a")
		id := hubtest.ReadPublish(w).ID
		h.Drop("")
		synctest.Wait()
		w = hubtest.Login(t, h, d) // without a new subscription
		hubtest.Ack(w, id)
		hubtest.Quiet(w)
		require.Equal(t, []string{"enqueued 1"}, hubtest.States(h))
	})
}

func TestKeptSessionReceivesWithoutSubscribing(t *testing.T) {
	for name, end := range map[string]func(h *testbroker.Hub, w *hubtest.Wire){
		"abrupt":   func(h *testbroker.Hub, w *hubtest.Wire) { h.Drop("") },
		"in order": func(h *testbroker.Hub, w *hubtest.Wire) { w.Send([]byte{0xe0, 0}); w.End() },
		"replaced": func(h *testbroker.Hub, w *hubtest.Wire) {},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			w, present := hubtest.Keeper(t, h, d)
			require.Zero(t, present)
			require.Equal(t, []byte{1, 1}, w.Subscribe(1, hubtest.DeviceBound, "$iothub/twin/res/#"))
			for range 3 {
				end(h, w)
				hubtest.Enqueue(t, h, "a")
				w, present = hubtest.Keeper(t, h, d)
				require.Equal(t, byte(1), present)
				c := hubtest.ReadPublish(w)
				require.Equal(t, "a", c.Body)
				hubtest.Ack(w, c.ID)
				w.Ping()
			}
			require.Equal(t, []byte{1, 1, 1}, w.Subscribe(1, "$iothub/methods/POST/a/#", "$iothub/methods/POST/b/#",
				"$iothub/methods/POST/c/#"))
			require.Equal(t, []byte{0x80}, w.Subscribe(1, "$iothub/methods/POST/d/#"), "the filters of before count")
		})
	}
}

func TestUnsubscribedStaysSoInAKeptSession(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w, _ := hubtest.Keeper(t, h, d)
		w.Subscribe(1, hubtest.DeviceBound)
		w.Send(hubtest.Frame(0xa2, []byte{0, 9}, hubtest.Str(hubtest.DeviceBound)))
		w.Expect(hubtest.Unsuback)
		hubtest.Enqueue(t, h, "a")
		w, present := hubtest.Keeper(t, h, d)
		require.Equal(t, byte(1), present)
		hubtest.Quiet(w)
	})
}

func TestCleanSessionForgets(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w, _ := hubtest.Keeper(t, h, d)
		w.Subscribe(1, hubtest.DeviceBound)
		w = hubtest.Login(t, h, d)
		hubtest.Enqueue(t, h, "a")
		hubtest.Quiet(w)
		w.Subscribe(1, hubtest.DeviceBound)
		require.Equal(t, "a", hubtest.ReadPublish(w).Body, "the queue is the hub's")
		w, present := hubtest.Keeper(t, h, d)
		require.Zero(t, present, "neither the older session nor that of the clean connection")
		hubtest.Quiet(w)
	})
}

func TestRemoveDeviceForgetsAll(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		mod := hubtest.AddModule(t, h, "dev-1", "m")
		w, _ := hubtest.Keeper(t, h, d)
		w.Subscribe(1, hubtest.DeviceBound)
		hubtest.Keeper(t, h, mod)
		hubtest.Enqueue(t, h, "a")
		hubtest.ReadPublish(w)
		require.NoError(t, h.SendC2D("dev-1/m", hubdata.C2D{}))
		require.NoError(t, h.RemoveDevice("dev-1"))
		require.Equal(t, []string{"purged 1", "purged 0"}, hubtest.States(h))
		d = hubtest.AddDevice(t, h, "dev-1")
		w, present := hubtest.Keeper(t, h, d)
		require.Zero(t, present)
		w.Subscribe(1, hubtest.DeviceBound)
		hubtest.Quiet(w)
		hubtest.Enqueue(t, h, "b")
		require.Equal(t,
			hubtest.Packet{QoS: 1,
				Topic: "devices/dev-1/messages/devicebound/%24.to=%2Fdevices%2Fdev-1%2Fmessages%2FdeviceBound",
				ID:    2, Body: "b"}, hubtest.ReadPublish(w))
	})
}

func TestForgetSession(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		in := h.Inject(fault.Fault{Kind: fault.ForgetSession})
		hubtest.Login(t, h, d)
		w, _ := hubtest.Keeper(t, h, d)
		require.Zero(t, in.Fired(), "there was nothing to forget")
		w.Subscribe(1, hubtest.DeviceBound)
		hubtest.Enqueue(t, h, "a")
		hubtest.ReadPublish(w)
		w, present := hubtest.Keeper(t, h, d)
		require.Zero(t, present)
		require.Equal(t, 1, in.Fired())
		hubtest.Quiet(w)
		w.Subscribe(1, hubtest.DeviceBound)
		require.Equal(t, []string{"+a"}, hubtest.ReadBodies(w, 1))
		_, present = hubtest.Keeper(t, h, d)
		require.Equal(t, byte(1), present)
	})
}

// TestTwoWayTraffic sends 10,000 messages each way at full speed, to a client that reads and writes
// independently.
func TestTwoWayTraffic(t *testing.T) {
	for name, open := range hubtest.TwoWays() {
		t.Run(name, func(t *testing.T) {
			n := 10000
			if strings.HasPrefix(name, "WebSocket") {
				n = 3000 // WebSocket messages cost more time
			}
			h, d, conn := open(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			w := hubtest.NewWire(t, conn)
			require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
			require.Equal(t, []byte{1}, w.Subscribe(1, hubtest.DeviceBound))
			read := make(chan []string, 1)
			acks := make(chan uint16, n)
			go func() { // the client's reader
				var bodies []string
				pubacks := 0
				for pubacks < n || len(bodies) < n {
					kind, body, err := w.Read()
					if err != nil {
						t.Errorf("after %d PUBACKs and %d commands: %v", pubacks, len(bodies), err)
						break
					}
					if kind == hubtest.Puback {
						pubacks++
						continue
					}
					topic := binary.BigEndian.Uint16(body)
					body = body[2+topic:]
					acks <- binary.BigEndian.Uint16(body)
					bodies = append(bodies, string(body[2:]))
				}
				close(acks)
				read <- bodies
			}()
			sent := make(chan error, 1)
			go func() { // the cloud
				for i := range n {
					for {
						err := h.SendC2D("dev-1", hubdata.C2D{Body: []byte(fmt.Sprint(i))})
						if err == nil {
							break
						}
						if err := h.WaitC2D(ctx, "", hubdata.C2DCompleted, i-40); err != nil {
							sent <- err
							return
						}
					}
				}
				sent <- nil
			}()
			for i := range n { // the client's writer
				w.Send(hubtest.PublishBytes(2, uint16(i%60000+1), hubtest.Events, fmt.Sprint(i)))
				for more := true; more; {
					select {
					case id, ok := <-acks:
						if more = ok; ok {
							hubtest.Ack(w, id)
						}
					default:
						more = false
					}
				}
			}
			for id := range acks {
				hubtest.Ack(w, id)
			}
			require.NoError(t, <-sent)
			bodies := <-read
			require.NoError(t, h.WaitC2D(ctx, "", hubdata.C2DCompleted, n))
			require.Equal(t, n, h.Len())
			for i, m := range h.Messages() {
				require.Equal(t, fmt.Sprint(i), string(m.Body))
				require.Equal(t, fmt.Sprint(i), bodies[i])
			}
			require.Empty(t, h.Conflicts())
		})
	}
}

// TestClientThatDoesNotRead sends more than a client that does not read can get.
func TestClientThatDoesNotRead(t *testing.T) {
	var end event.Event
	h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) {
		if e.Kind == event.Disconnected {
			end = e
		}
	}})
	addr := hubtest.Listen(t, h, testbroker.PortMQTT)
	w := hubtest.RealTCP(t, addr)
	w.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
	require.Equal(t, []byte{1}, w.Subscribe(1, hubtest.DeviceBound))
	start := time.Now()
	for range 50 {
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: make([]byte, hubdata.MaxC2D)}))
	}
	require.Less(t, time.Since(start), hubtest.WaitLimit/2, "nobody waits for it")
	require.Equal(t, 16, h.CountC2D("", hubdata.C2DInvisible))
	for range 2 { // the system has buffers too
		h.SendRaw("dev-1", make([]byte, 8<<20))
	}
	require.NoError(t, h.Wait(t.Context(), func([]hubdata.Message) bool { return h.Connections("") == 0 }))
	require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.C2DEnqueued, 50))
	require.NoError(t, h.Close())
	require.ErrorIs(t, end.Err, testbroker.ErrSlowReader)
	_, err := io.Copy(io.Discard, w.Conn)
	require.Error(t, err)
}
