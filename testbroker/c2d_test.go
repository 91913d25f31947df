package testbroker_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

const devicebound = "devices/dev-1/messages/devicebound/#"

// c2dMessage is a PUBLISH from the hub.
type command struct {
	qos   byte
	dup   bool
	topic string
	id    uint16
	body  string
}

// readC2D reads a PUBLISH.
func readC2D(w *hubtest.Wire) command {
	w.T.Helper()
	first, err := w.In.Peek(1)
	require.NoError(w.T, err)
	body := w.Expect(3)
	n := binary.BigEndian.Uint16(body)
	c := command{qos: first[0] >> 1 & 3, dup: first[0]&8 != 0, topic: string(body[2 : 2+n])}
	require.Zero(w.T, first[0]&1, "RETAIN")
	body = body[2+n:]
	if c.qos > 0 {
		c.id = binary.BigEndian.Uint16(body)
		body = body[2:]
	}
	c.body = string(body)
	return c
}

// c2dMessages reads PUBLISH packets and returns their bodies, with a plus sign for DUP.
func c2dMessages(w *hubtest.Wire, n int) (all []string) {
	w.T.Helper()
	for range n {
		c := readC2D(w)
		if c.dup {
			c.body = "+" + c.body
		}
		all = append(all, c.body)
	}
	return all
}

func ack(w *hubtest.Wire, id uint16) {
	w.T.Helper()
	w.Send([]byte{0x40, 2, byte(id >> 8), byte(id)})
}

// quiet checks that the hub sends nothing more by itself.
func quiet(w *hubtest.Wire) {
	w.T.Helper()
	synctest.Wait()
	w.Ping()
}

// receiver logs in and subscribes to C2D messages.
func receiver(t testing.TB, h *testbroker.Hub, d hubdata.Device, qos byte) *hubtest.Wire {
	w := hubtest.Login(t, h, d)
	filter := devicebound
	if d.ModuleID != "" {
		filter = "devices/dev-1/modules/" + d.ModuleID + "/messages/devicebound/#"
	}
	require.Equal(t, []byte{qos}, w.Subscribe(qos, filter))
	return w
}

// keeper connects with CleanSession=0 and returns the session-present flag.
func keeper(t testing.TB, h *testbroker.Hub, d hubdata.Device) (*hubtest.Wire, byte) {
	c := hubtest.ConnectOf(d)
	c.Flags = 0
	w := hubtest.Dial(t, h)
	answer := w.Connect(c)
	require.Zero(t, answer[1])
	return w, answer[0]
}

// states returns the states and delivery counts of all C2D messages.
func states(h *testbroker.Hub) (all []string) {
	for _, r := range h.C2DLog("") {
		all = append(all, fmt.Sprint(r.State, " ", r.Deliveries))
	}
	return all
}

func TestC2DMessageIsDeliveredAndCompleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w := receiver(t, h, d, 1)
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
		require.Equal(t, command{qos: 1, topic: topic, id: 1, body: "hello"}, readC2D(w))

		want := hubdata.C2DRecord{
			DeviceID: "dev-1", Sequence: 1, C2D: sent, Topic: topic, State: hubdata.Invisible, Deliveries: 1, Connection: 1,
			PacketID: 1, Enqueued: start,
		}
		require.Equal(t, []hubdata.C2DRecord{want}, h.C2DLog("dev-1"))
		time.Sleep(time.Second)
		ack(w, 1)
		require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.Completed, 1))
		want.State, want.Ended, want.Feedback = hubdata.Completed, start.Add(time.Second), "Success"
		require.Equal(t, []hubdata.C2DRecord{want}, h.C2DLog(""))
		quiet(w)
	})
}

func TestEmptyC2DMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w := receiver(t, h, d, 1)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{}))
		require.Equal(t, "devices/dev-1/messages/devicebound/%24.to=%2Fdevices%2Fdev-1%2Fmessages%2FdeviceBound",
			readC2D(w).topic,
			"the bag is never empty")
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Extra: "&nothing&empty=/"}))
		require.Equal(t,
			"devices/dev-1/messages/devicebound/%24.to=%2Fdevices%2Fdev-1%2Fmessages%2FdeviceBound&nothing&empty=/",
			readC2D(w).topic)
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
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		for range 50 {
			hubtest.Enqueue(t, h, "x")
		}
		require.ErrorIs(t, h.SendC2D("dev-1", hubdata.C2D{}), testbroker.ErrQueueFull)
		w := receiver(t, h, d, 1)
		require.ErrorIs(t, h.SendC2D("dev-1", hubdata.C2D{}), testbroker.ErrQueueFull,
			"what is not acknowledged still counts")
		ack(w, readC2D(w).id)
		require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.Completed, 1))
		hubtest.Enqueue(t, h, "x")
		require.Equal(t, 50, h.PurgeC2D("dev-1"))
		require.Equal(t, 50, h.CountC2D("", hubdata.Purged))
	})
}

func TestWindowOfUnacknowledgedC2DMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{C2D: testbroker.C2DOptions{Window: 3}})
		w := receiver(t, h, d, 1)
		hubtest.Enqueue(t, h, "a", "b", "c", "d", "e")
		require.Equal(t, []string{"a", "b", "c"}, c2dMessages(w, 3))
		quiet(w)
		ack(w, 2)
		require.Equal(t, "d", readC2D(w).body)
		ack(w, 2) // a repeated PUBACK, and one without a message
		ack(w, 77)
		quiet(w)
		ack(w, 1)
		require.Equal(t, "e", readC2D(w).body)
		require.Equal(t, []string{"completed 1", "completed 1", "invisible 1", "invisible 1", "invisible 1"}, states(h))
	})
}

func TestC2DMessagesWithQoS0(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w := receiver(t, h, d, 0)
		for range 50 {
			hubtest.Enqueue(t, h, "x")
			require.Equal(t,
				command{topic: "devices/dev-1/messages/devicebound/%24.to=%2Fdevices%2Fdev-1%2Fmessages%2FdeviceBound", body: "x"},
				readC2D(w))
		}
		require.Equal(t, 50, h.CountC2D("dev-1", hubdata.Completed))
		quiet(w)
	})
}

func TestC2DMessagesAreForSubscribersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w := hubtest.Login(t, h, d)
		w.Subscribe(1, "$iothub/twin/res/#")
		hubtest.Enqueue(t, h, "a", "b")
		quiet(w)
		require.Equal(t, []byte{1}, w.Subscribe(1, devicebound))
		require.Equal(t, []string{"a", "b"}, c2dMessages(w, 2))

		w.Send(hubtest.Frame(0xa2, []byte{0, 9}, hubtest.Str(devicebound)))
		w.Expect(hubtest.Unsuback)
		hubtest.Enqueue(t, h, "c")
		ack(w, 1)
		quiet(w)
		require.Equal(t, []string{"completed 1", "invisible 1", "enqueued 0"}, states(h),
			"what was under way can be acknowledged")
		w.Subscribe(1, devicebound)
		require.Equal(t, "c", readC2D(w).body)
	})
}

func TestC2DMessagesToModules(t *testing.T) {
	for _, filter := range []string{"devices/dev-1/modules/mod-1/messages/devicebound/#",
		"devices/dev-1/modules/mod-1/#"} {
		t.Run(filter, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := hubtest.NewHub(t, nil)
				mod, err := h.AddModule("dev-1", "mod-1")
				require.NoError(t, err)
				device, module := receiver(t, h, d, 1), hubtest.Login(t, h, mod)
				require.Equal(t, []byte{1, 0}, append(module.Subscribe(1, filter), module.Subscribe(0,
					"devices/dev-1/modules/mod-1/inputs/#")...))
				require.NoError(t, h.SendC2D("dev-1/mod-1", hubdata.C2D{Body: []byte("x")}))
				c := readC2D(module)
				require.Equal(t,
					"devices/dev-1/modules/mod-1/messages/devicebound/"+
						"%24.to=%2Fdevices%2Fdev-1%2Fmodules%2Fmod-1%2Fmessages%2FdeviceBound", c.topic)
				quiet(device)
				ack(module, c.id)
				require.NoError(t, h.WaitC2D(t.Context(), "dev-1/mod-1", hubdata.Completed, 1))
				require.Equal(t, "mod-1", h.C2DLog("dev-1")[0].ModuleID)
			})
		})
	}
}

func TestTheHigherQoSOfTwoFiltersHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := hubtest.NewHub(t, nil)
		mod, err := h.AddModule("dev-1", "m")
		require.NoError(t, err)
		w := hubtest.Login(t, h, mod)
		w.Subscribe(1, "devices/dev-1/modules/m/#")
		w.Subscribe(0, "devices/dev-1/modules/m/messages/devicebound/#")
		require.NoError(t, h.SendC2D("dev-1/m", hubdata.C2D{}))
		require.Equal(t, byte(1), readC2D(w).qos)
		quiet(w)
	})
}

func TestC2DMessageIsDeliveredAgainAfterItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w := receiver(t, h, d, 1)
		start := time.Now()
		hubtest.Enqueue(t, h, "a", "b")
		require.Equal(t, []string{"a", "b"}, c2dMessages(w, 2))
		ack(w, 2)
		c := readC2D(w)
		require.Equal(t, time.Minute, time.Since(start))
		require.True(t, c.dup)
		require.Equal(t, uint16(1), c.id, "the packet id stays")
		ack(w, 1)
		require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.Completed, 2))
		require.Equal(t, []string{"completed 2", "completed 1"}, states(h))
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := hubtest.NewHub(t, nil)
				w := receiver(t, h, d, 1)
				hubtest.Enqueue(t, h, "a", "b", "c")
				require.Equal(t, []string{"a", "b", "c"}, c2dMessages(w, 3))
				ack(w, 2)
				synctest.Wait()
				c.end(t, h, w)
				synctest.Wait()
				hubtest.Enqueue(t, h, "d")
				w = receiver(t, h, d, 1)
				got := c2dMessages(w, 3)
				if c.missed { // the hub has sent it on the old connection
					require.Equal(t, "+d", got[2])
					got[2] = strings.TrimPrefix(got[2], "+")
				}
				require.Equal(t, []string{"+a", "+c", "d"}, got)
			})
		})
	}
}

func TestC2DMessageIsDeadLettered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w := receiver(t, h, d, 1)
		start := time.Now()
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: "negative", Body: []byte("x")}))
		w.Conn.SetDeadline(time.Now().Add(time.Hour))
		for n := range 10 {
			require.Equal(t, n > 0, readC2D(w).dup)
			require.Equal(t, time.Duration(n)*time.Minute, time.Since(start))
			w.Ping()
		}
		require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.DeadLettered, 1))
		require.Equal(t, 10*time.Minute, time.Since(start))
		require.Equal(t, []string{"dead-lettered 10"}, states(h))
		require.Equal(t, "DeliveryCountExceeded", h.C2DLog("")[0].Feedback)
		w = receiver(t, h, d, 1)
		quiet(w)
	})
}

func TestC2DMessageExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, &testbroker.Options{C2D: testbroker.C2DOptions{TTL: 10 * time.Minute, MaxDeliveries: 100}})
		start := time.Now()
		hubtest.Enqueue(t, h, "short of time")
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Expiry: start.Add(20 * time.Minute), Ack: "full"}))
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Expiry: start.Add(-time.Second)}))
		require.Equal(t, []string{"enqueued 0", "enqueued 0", "expired 0"}, states(h))
		require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.Expired, 2))
		require.Equal(t, 10*time.Minute, time.Since(start), "without a connection")
		require.NoError(t, h.WaitC2D(t.Context(), "dev-1", hubdata.Expired, 3))
		require.Equal(t, 20*time.Minute, time.Since(start))
		require.Equal(t, "Expired", h.C2DLog("")[1].Feedback)

		w := receiver(t, h, d, 1)
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Expiry: time.Now().Add(90 * time.Second)}))
		require.False(t, readC2D(w).dup)
		time.Sleep(30 * time.Second)
		w.Ping()
		require.True(t, readC2D(w).dup)
		time.Sleep(45 * time.Second)
		require.Equal(t, "invisible 2", states(h)[3], "a lock outlives the expiry")
		w.Ping()
		require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.Expired, 4))
		quiet(w)
	})
}

func TestFeedback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		for _, ack := range []string{"", "none", "positive", "negative", "full"} {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: ack}))
		}
		h.PurgeC2D("")
		w := receiver(t, h, d, 0)
		for _, ack := range []string{"", "none", "positive", "negative", "full"} {
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Ack: ack}))
		}
		c2dMessages(w, 5)
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
		w := receiver(t, h, d, 1)
		hubtest.Enqueue(t, h, "a")
		id := readC2D(w).id
		h.Drop("")
		synctest.Wait()
		w = hubtest.Login(t, h, d) // without a new subscription
		ack(w, id)
		quiet(w)
		require.Equal(t, []string{"enqueued 1"}, states(h))
	})
}

func TestKeptSessionReceivesWithoutSubscribing(t *testing.T) {
	for name, end := range map[string]func(h *testbroker.Hub, w *hubtest.Wire){
		"abrupt":   func(h *testbroker.Hub, w *hubtest.Wire) { h.Drop("") },
		"in order": func(h *testbroker.Hub, w *hubtest.Wire) { w.Send([]byte{0xe0, 0}); w.End() },
		"replaced": func(h *testbroker.Hub, w *hubtest.Wire) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, d := hubtest.NewHub(t, nil)
				w, present := keeper(t, h, d)
				require.Zero(t, present)
				require.Equal(t, []byte{1, 1}, w.Subscribe(1, devicebound, "$iothub/twin/res/#"))
				for range 3 {
					end(h, w)
					hubtest.Enqueue(t, h, "a")
					w, present = keeper(t, h, d)
					require.Equal(t, byte(1), present)
					c := readC2D(w)
					require.Equal(t, "a", c.body)
					ack(w, c.id)
					w.Ping()
				}
				require.Equal(t, []byte{1, 1, 1}, w.Subscribe(1, "$iothub/methods/POST/a/#", "$iothub/methods/POST/b/#",
					"$iothub/methods/POST/c/#"))
				require.Equal(t, []byte{0x80}, w.Subscribe(1, "$iothub/methods/POST/d/#"), "the filters of before count")
			})
		})
	}
}

func TestUnsubscribedStaysSoInAKeptSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w, _ := keeper(t, h, d)
		w.Subscribe(1, devicebound)
		w.Send(hubtest.Frame(0xa2, []byte{0, 9}, hubtest.Str(devicebound)))
		w.Expect(hubtest.Unsuback)
		hubtest.Enqueue(t, h, "a")
		w, present := keeper(t, h, d)
		require.Equal(t, byte(1), present)
		quiet(w)
	})
}

func TestCleanSessionForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w, _ := keeper(t, h, d)
		w.Subscribe(1, devicebound)
		w = hubtest.Login(t, h, d)
		hubtest.Enqueue(t, h, "a")
		quiet(w)
		w.Subscribe(1, devicebound)
		require.Equal(t, "a", readC2D(w).body, "the queue is the hub's")
		w, present := keeper(t, h, d)
		require.Zero(t, present, "neither the older session nor that of the clean connection")
		quiet(w)
	})
}

func TestRemoveDeviceForgetsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		mod, err := h.AddModule("dev-1", "m")
		require.NoError(t, err)
		w, _ := keeper(t, h, d)
		w.Subscribe(1, devicebound)
		keeper(t, h, mod)
		hubtest.Enqueue(t, h, "a")
		readC2D(w)
		require.NoError(t, h.SendC2D("dev-1/m", hubdata.C2D{}))
		require.NoError(t, h.RemoveDevice("dev-1"))
		require.Equal(t, []string{"purged 1", "purged 0"}, states(h))
		d, err = h.AddDevice("dev-1")
		require.NoError(t, err)
		w, present := keeper(t, h, d)
		require.Zero(t, present)
		w.Subscribe(1, devicebound)
		quiet(w)
		hubtest.Enqueue(t, h, "b")
		require.Equal(t,
			command{qos: 1, topic: "devices/dev-1/messages/devicebound/%24.to=%2Fdevices%2Fdev-1%2Fmessages%2FdeviceBound",
				id: 2, body: "b"}, readC2D(w))
	})
}

func TestForgetSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		in := h.Inject(fault.Fault{Kind: fault.ForgetSession})
		hubtest.Login(t, h, d)
		w, _ := keeper(t, h, d)
		require.Zero(t, in.Fired(), "there was nothing to forget")
		w.Subscribe(1, devicebound)
		hubtest.Enqueue(t, h, "a")
		readC2D(w)
		w, present := keeper(t, h, d)
		require.Zero(t, present)
		require.Equal(t, 1, in.Fired())
		quiet(w)
		w.Subscribe(1, devicebound)
		require.Equal(t, []string{"+a"}, c2dMessages(w, 1))
		_, present = keeper(t, h, d)
		require.Equal(t, byte(1), present)
	})
}

func TestPacketIDsOfC2DMessagesWrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, d := hubtest.NewHub(t, nil)
		w := receiver(t, h, d, 1)
		hubtest.Enqueue(t, h, "a", "b", "c")
		c2dMessages(w, 3)
		ack(w, 1)
		ack(w, 3)
		synctest.Wait()
		h.SetPacketID("dev-1", 65534)
		hubtest.Enqueue(t, h, "d", "e", "f")
		require.Equal(t, []uint16{65535, 1, 3}, []uint16{readC2D(w).id, readC2D(w).id, readC2D(w).id},
			"zero is none, and two is taken")
	})
}

// TestTwoWayTraffic sends 10,000 messages each way at full speed, to a client that reads and writes
// independently.
func TestTwoWayTraffic(t *testing.T) {
	for name, open := range twoWays(t) {
		t.Run(name, func(t *testing.T) {
			n := 10000
			if strings.HasPrefix(name, "WebSocket") {
				n = 3000 // WebSocket messages cost more time
			}
			h, d, conn := open(t)
			w := hubtest.NewWire(t, conn)
			require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
			require.Equal(t, []byte{1}, w.Subscribe(1, devicebound))
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
						if err := h.WaitC2D(t.Context(), "", hubdata.Completed, i-40); err != nil {
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
							ack(w, id)
						}
					default:
						more = false
					}
				}
			}
			for id := range acks {
				ack(w, id)
			}
			require.NoError(t, <-sent)
			bodies := <-read
			require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.Completed, n))
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
	addr, err := h.Listen(testbroker.PortMQTT, "127.0.0.1:0")
	require.NoError(t, err)
	w := realTCP(t, addr)
	w.Conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	require.Equal(t, []byte{0, 0}, w.Connect(hubtest.ConnectOf(d)))
	require.Equal(t, []byte{1}, w.Subscribe(1, devicebound))
	start := time.Now()
	for range 50 {
		require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: make([]byte, hubdata.MaxC2D)}))
	}
	require.Less(t, time.Since(start), hubtest.WaitLimit/2, "nobody waits for it")
	require.Equal(t, 16, h.CountC2D("", hubdata.Invisible))
	for range 2 { // the system has buffers too
		h.SendRaw("dev-1", make([]byte, 8<<20))
	}
	require.NoError(t, h.Wait(t.Context(), func([]hubdata.Message) bool { return h.Connections("") == 0 }))
	require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.Enqueued, 50))
	require.NoError(t, h.Close())
	require.ErrorIs(t, end.Err, testbroker.ErrSlowReader)
	_, err = io.Copy(io.Discard, w.Conn)
	require.Error(t, err)
}

// TestTwoWayTrafficWithPaho checks that a client which handles packets one after the other, and
// sends acknowledgements from its reader, does not deadlock with the hub.
func TestTwoWayTrafficWithPaho(t *testing.T) {
	const n = 300
	h, d := hubtest.NewHub(t, nil)
	addr, err := h.Listen(testbroker.PortMQTT, "127.0.0.1:0")
	require.NoError(t, err)
	c := pahoClient(h, d, func() (net.Conn, error) { return net.Dial("tcp", addr.String()) })
	done(t, c.Connect())
	defer c.Disconnect(0)
	done(t, c.Subscribe(devicebound, 1, func(paho.Client, paho.Message) {}))
	body := make([]byte, 60<<10)
	sent := make(chan error, 1)
	go func() {
		for i := range n {
			for h.SendC2D("dev-1", hubdata.C2D{Body: body}) != nil {
				if err := h.WaitC2D(t.Context(), "", hubdata.Completed, i-40); err != nil {
					sent <- err
					return
				}
			}
		}
		sent <- nil
	}()
	var all []paho.Token
	for range n {
		all = append(all, c.Publish(hubtest.Events, 1, false, body))
	}
	for _, tok := range all {
		done(t, tok)
	}
	require.NoError(t, <-sent)
	require.NoError(t, h.WaitC2D(t.Context(), "", hubdata.Completed, n))
	require.Equal(t, n, h.Len())
}
