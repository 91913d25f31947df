package mqttfront_test

import (
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestTelemetryIsLogged(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
		w, m := hubtest.Login(t, h, d), hubtest.Login(t, h, mod)
		w.Publish(258, hubtest.Events+"%24.mid=a&x=1", "one")
		require.Equal(t, uint16(258), w.Acked())
		require.Equal(t, 1, h.Len(), "stored before it is acknowledged")

		time.Sleep(time.Minute / 2)
		m.Publish(1, "devices/dev-1/modules/mod-1/messages/events/", "two")
		m.Acked()
		w.Send(hubtest.PublishBytes(2|8, 7, hubtest.Events+"%24.mid=c", "again")) // DUP
		w.Acked()
		w.Send(hubtest.PublishBytes(0, 0, hubtest.Events, "no answer wanted"))
		w.Send(hubtest.PublishBytes(2|1, 8, hubtest.Events+"x=1", "retained")) // RETAIN
		require.Equal(t, uint16(8), w.Acked())

		start := time.Now().Add(-time.Minute / 2)
		want := []hubdata.Message{
			{
				DeviceID: "dev-1", MessageID: "a", System: []hubdata.Property{{Name: "$.mid", Value: "a"}},
				Properties: []hubdata.Property{{Name: "x", Value: "1"}},
				Protocol:   hubdata.MQTT, Topic: hubtest.Events + "%24.mid=a&x=1", Body: []byte("one"), QoS: 1, PacketID: 258,
				Connection: 1, Received: start, Sequence: 1,
			},
			{
				DeviceID: "dev-1", ModuleID: "mod-1", Protocol: hubdata.MQTT,
				Topic: "devices/dev-1/modules/mod-1/messages/events/",
				Body:  []byte("two"), QoS: 1, PacketID: 1, Connection: 2, Received: time.Now(), Sequence: 2,
			},
			{
				DeviceID: "dev-1", MessageID: "c", System: []hubdata.Property{{Name: "$.mid", Value: "c"}},
				Protocol: hubdata.MQTT, Topic: hubtest.Events + "%24.mid=c", Body: []byte("again"), QoS: 1, PacketID: 7, Dup: true,
				Connection: 1, Received: time.Now(), Sequence: 3,
			},
			{DeviceID: "dev-1", Protocol: hubdata.MQTT, Topic: hubtest.Events, Body: []byte("no answer wanted"), Connection: 1,
				Received: time.Now(), Sequence: 4},
			{
				DeviceID: "dev-1", Properties: []hubdata.Property{{Name: "x", Value: "1"}, {Name: "mqtt-retain", Value: "true"}},
				Protocol: hubdata.MQTT, Topic: hubtest.Events + "x=1", Body: []byte("retained"), QoS: 1, PacketID: 8, Connection: 1,
				Received: time.Now(), Sequence: 5,
			},
		}
		require.Equal(t, want, h.Messages())
		require.Empty(t, h.Conflicts())
		value, ok := want[4].Property("mqtt-retain")
		require.True(t, ok)
		require.Equal(t, "true", value)
		_, ok = want[4].Property("y")
		require.False(t, ok)

		copied := h.Messages()
		copied[0].Body[0], copied[0].Properties[0].Name = 'X', "X"
		require.Equal(t, want, h.Messages(), "the log is not the caller's")
	})
}

func TestConflicts(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		two := hubtest.AddDevice(t, h, "dev-2")
		w, w2 := hubtest.Login(t, h, d), hubtest.Login(t, h, two)
		for i, s := range []string{"same", "same", "other"} {
			w.Publish(uint16(i+1), hubtest.Events+"%24.mid=a", s)
			w.Acked()
		}
		w.Publish(4, hubtest.Events, "no id")
		w.Publish(5, hubtest.Events, "no id either")
		w.Acked()
		w.Acked()
		w2.Publish(1, "devices/dev-2/messages/events/%24.mid=a", "of another device")
		w2.Acked()
		got := h.Conflicts()
		require.Len(t, got, 1)
		require.Equal(t, "same", string(got[0].First.Body))
		require.Equal(t, "other", string(got[0].Second.Body))
	})
}

func TestWait(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		go func() {
			w := hubtest.Login(t, h, d)
			for i := range uint16(5) {
				time.Sleep(time.Second)
				w.Publish(i+1, hubtest.Events, "x")
				w.Acked()
			}
			w.Conn.Close()
		}()
		start := time.Now()
		require.NoError(t, h.WaitMessages(t.Context(), 2))
		require.Equal(t, 2*time.Second, time.Since(start))
		require.NoError(t, h.Wait(t.Context(),
			func(log []hubdata.Message) bool { return len(log) == 5 && log[4].PacketID == 5 }))
		require.NoError(t, h.Wait(t.Context(), func([]hubdata.Message) bool { return h.Connections("") == 0 }))
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

func TestSizeLimit(t *testing.T) {
	bag := "%24.mid=" + strings.Repeat("x", hubdata.MaxMessageID) + "&abc=de%20" // counts 128 + 3 + 3
	body := strings.Repeat("x", 256<<10-134)                                     // just fits
	for name, c := range map[string]struct {
		body string
		ok   bool
	}{"fits": {body, true}, "one byte too many": {body + "x", false}, "far too many": {strings.Repeat(body, 2), false}} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			w := hubtest.Login(t, h, d)
			w.Publish(1, hubtest.Events+bag, c.body)
			if c.ok {
				require.Equal(t, uint16(1), w.Acked())
				require.Len(t, h.Messages()[0].Body, len(c.body))
				return
			}
			require.Equal(t, io.EOF, w.End())
			require.Zero(t, h.Len())
		})
	}
}

func TestPacketsThatCloseTheConnection(t *testing.T) {
	for name, p := range map[string][]byte{
		"publish to another device":  hubtest.PublishBytes(2, 1, "devices/dev-2/messages/events/", "x"),
		"publish to the device":      hubtest.PublishBytes(2, 1, "devices/dev-1/messages/devicebound/", "x"),
		"publish anywhere":           hubtest.PublishBytes(2, 1, "a/b", "x"),
		"publish anywhere, QoS 0":    hubtest.PublishBytes(0, 0, "a/b", "x"),
		"publish to $SYS":            hubtest.PublishBytes(2, 1, "$SYS/broker/version", "x"),
		"publish with a wildcard":    hubtest.PublishBytes(2, 1, hubtest.Events+"a=#", "x"),
		"publish with a bad bag":     hubtest.PublishBytes(2, 1, hubtest.Events+"a=%zz", "x"),
		"publish with a long id":     hubtest.PublishBytes(2, 1, hubtest.Events+"%24.mid="+strings.Repeat("x", 129), "x"),
		"publish without a topic":    hubtest.PublishBytes(2, 1, "", "x"),
		"publish with packet id 0":   hubtest.PublishBytes(2, 0, hubtest.Events, "x"),
		"publish with QoS 2":         hubtest.PublishBytes(4, 1, hubtest.Events, "x"),
		"publish with QoS 3":         hubtest.PublishBytes(6, 1, hubtest.Events, "x"),
		"subscribe without QoS":      hubtest.Frame(0x80, []byte{0, 1}, hubtest.Str("$iothub/twin/res/#"), []byte{1}),
		"connack from a client":      {0x20, 2, 0, 0},
		"length that does not end":   {0x30, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
		"packet of a type not known": {0xf0, 0},
		"publish with NUL":           hubtest.PublishBytes(2, 1, hubtest.Events+"a=\x00", "x"),
		"publish with invalid UTF-8": hubtest.PublishBytes(2, 1, hubtest.Events+"a=\xff", "x"),
		"publish with a cut topic":   hubtest.Frame(0x32, []byte{0, 99}, []byte("devices")),
		"publish without a body":     {0x32, 0},
		"DUP with QoS 0":             hubtest.PublishBytes(8, 0, hubtest.Events, "x"),
		"overlong length":            {0x30, 0x80, 0x80, 0x80, 0x80, 0},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			w := hubtest.Login(t, h, d)
			w.Send(p)
			require.Equal(t, io.EOF, w.End(), "and no packet before")
			require.Zero(t, h.Len())
		})
	}
}

func TestMessageBeforeABadOneIsAcknowledged(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		w.Send(append(hubtest.PublishBytes(2, 1, hubtest.Events, "x"), hubtest.PublishBytes(2, 2, "a/b", "x")...))
		require.Equal(t, uint16(1), w.Acked())
		require.Equal(t, io.EOF, w.End())
		require.Equal(t, 1, h.Len())
	})
}

func TestSubscribe(t *testing.T) {
	const refused = 0x80
	for name, c := range map[string]struct {
		module  bool
		qos     byte
		filters []string
		want    []byte
	}{
		"device's own": {false, 1, []string{"devices/dev-1/messages/devicebound/#", "$iothub/twin/res/#",
			"$iothub/twin/PATCH/properties/desired/#", "$iothub/methods/POST/#"}, []byte{1, 1, 1, 1}},
		"QoS 0":            {false, 0, []string{"$iothub/twin/res/#"}, []byte{0}},
		"QoS 2 is lowered": {false, 2, []string{"$iothub/twin/res/#"}, []byte{1}},
		"one method": {false, 1, []string{"$iothub/methods/POST/reboot/#", "$iothub/methods/POST/+/#",
			"$iothub/methods/POST//#", "$iothub/methods/POST/a"}, []byte{1, refused, refused, refused}},
		"of others": {false, 1, []string{"devices/dev-2/messages/devicebound/#", "devices/+/messages/devicebound/#",
			"#", "$SYS/#"}, []byte{refused, refused, refused, refused}},
		"events": {false, 1, []string{"devices/dev-1/messages/events/#", "devices/dev-1/#"},
			[]byte{refused, refused}},
		"module's own": {true, 1, []string{"devices/dev-1/modules/mod-1/#", "devices/dev-1/modules/mod-1/inputs/#",
			"devices/dev-1/modules/mod-1/messages/devicebound/#", "$iothub/methods/POST/#"}, []byte{1, 1, 1, 1}},
		"device's by module": {true, 1, []string{"devices/dev-1/messages/devicebound/#"}, []byte{refused}},
		"module's by device": {false, 1, []string{"devices/dev-1/modules/mod-1/#"}, []byte{refused}},
		"five and no more": {false, 1, []string{"$iothub/methods/POST/a/#", "$iothub/methods/POST/b/#",
			"$iothub/methods/POST/c/#", "$iothub/methods/POST/d/#", "$iothub/methods/POST/e/#", "$iothub/methods/POST/f/#",
			"$iothub/methods/POST/a/#"}, []byte{1, 1, 1, 1, 1, refused, 1}},
		"refused do not count": {false, 1, []string{"a", "b", "c", "d", "e", "$iothub/methods/POST/a/#"},
			[]byte{refused, refused, refused, refused, refused, 1}},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
			if c.module {
				d = mod
			}
			w := hubtest.Login(t, h, d)
			require.Equal(t, c.want, w.Subscribe(c.qos, c.filters...))
			w.Ping()
		})
	}
}

func TestUnsubscribeMakesRoom(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		w := hubtest.Login(t, h, d)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			require.Equal(t, []byte{1}, w.Subscribe(1, "$iothub/methods/POST/"+name+"/#"))
		}
		require.Equal(t, []byte{0x80}, w.Subscribe(1, "$iothub/twin/res/#"))
		w.Send(hubtest.Frame(0xa2, []byte{0, 9}, hubtest.Str("$iothub/methods/POST/c/#")))
		require.Equal(t, []byte{0, 9}, w.Expect(hubtest.Unsuback))
		require.Equal(t, []byte{1}, w.Subscribe(1, "$iothub/twin/res/#"))
	})
}

func TestTelemetryReachesNoSubscriber(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
		mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
		w := hubtest.Login(t, h, mod)
		require.Equal(t, []byte{1}, w.Subscribe(1, "devices/dev-1/modules/mod-1/#"))
		w.Publish(1, "devices/dev-1/modules/mod-1/messages/events/", "x")
		w.Acked()
		w.Ping()
	})
}

func TestWill(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire)
		sent bool
	}{
		"client goes without a word": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			w.Conn.Close()
		}, true},
		"client falls silent": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) { w.End() }, true},
		"newer connection": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			hubtest.Login(t, h, d)
		}, true},
		"cut by the hub": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			h.Drop("dev-1")
		}, true},
		"client disconnects": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			w.Send([]byte{0xe0, 0})
			w.End()
		}, false},
		"hub closes": {func(t *testing.T, h *testbroker.Hub, d hubdata.Device, w *hubtest.Wire) {
			h.Close()
		}, false},
	} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			con := hubtest.ConnectOf(d)
			con.Will = &hubtest.Will{Topic: hubtest.Events + "%24.mid=w&a=b", Text: "gone", Qos: 1}
			w := hubtest.Dial(t, h)
			require.Equal(t, []byte{0, 0}, w.Connect(con))
			c.end(t, h, d, w)
			synctest.Wait()
			if !c.sent {
				require.Zero(t, h.Len())
				return
			}
			require.Equal(t, []hubdata.Message{{
				DeviceID: "dev-1", MessageID: "w", System: []hubdata.Property{{Name: "$.mid", Value: "w"}},
				Properties: []hubdata.Property{{Name: "a", Value: "b"}, {Name: "iothub-MessageType", Value: "Will"}},
				Protocol:   hubdata.MQTT, Topic: hubtest.Events + "%24.mid=w&a=b", Body: []byte("gone"), QoS: 1, Connection: 1,
				Received: time.Now(), Sequence: 1,
			}}, h.Messages())
		})
	}
}

func TestWillMayBeEmpty(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		con := hubtest.ConnectOf(d)
		con.Will = &hubtest.Will{Topic: hubtest.Events}
		w := hubtest.Dial(t, h)
		require.Equal(t, []byte{0, 0}, w.Connect(con))
		w.Conn.Close()
		require.NoError(t, h.WaitMessages(t.Context(), 1))
	})
}

func BenchmarkPublish(b *testing.B) {
	h, d := hubtest.NewHub(b, nil)
	w := hubtest.Login(b, h, d)
	p := hubtest.PublishBytes(2, 1, hubtest.Events+"%24.ct=application%2Fjson&level=high%20temp", `{"celsius":71}`)
	b.ReportAllocs()
	const window = 100
	sent, acked := 0, 0
	for b.Loop() {
		if sent-acked == window {
			w.Acked()
			acked++
		}
		w.Send(p)
		sent++
	}
	for ; acked < sent; acked++ {
		w.Acked()
	}
}
