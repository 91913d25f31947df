package interop

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// world is a hub with a device, and MQTT.js.
type world struct {
	t   testing.TB
	hub *testbroker.Hub
	dev hubdata.Device
	js  *script
	url string
}

// hubWays are the MQTT ports of the hub.
var hubWays = []struct {
	name string
	url  func(t testing.TB, h *testbroker.Hub) string
}{
	{"over TLS", func(t testing.TB, h *testbroker.Hub) string {
		a, err := h.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
		require.NoError(t, err)
		return "mqtts://" + a.String()
	}},
	{"over WebSocket", func(t testing.TB, h *testbroker.Hub) string {
		a, err := h.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
		require.NoError(t, err)
		return "wss://" + a.String() + "/$iothub/websocket?iothub-no-client-cert=true"
	}},
}

// eachWay runs check against a new hub for each port.
func eachWay(t *testing.T, check func(w *world)) {
	for _, way := range hubWays {
		t.Run(way.name, func(t *testing.T) {
			w := &world{t: t, js: startScript(t, "client.js")}
			w.hub, w.dev = hubfixture.OpenDevice(t, nil, deviceID)
			w.url = way.url(t, w.hub)
			check(w)
		})
	}
}

// token returns a shared access signature for resource, made with Hubline's own function.
func token(t testing.TB, key, resource string, life time.Duration) string {
	sign, err := transport.SharedKey(key)
	require.NoError(t, err)
	made, err := transport.SignToken(context.Background(), sign, resource, "", time.Now().Add(life))
	require.NoError(t, err)
	return made.Text.Reveal()
}

func (w *world) resource() string { return w.hub.HostName() + "/devices/" + w.dev.ID }

func (w *world) user() string { return w.hub.HostName() + "/" + w.dev.ID + "/?api-version=2021-04-12" }

// connect starts to connect the client name; changed overrides the valid options.
func (w *world) connect(name string, changed map[string]any) {
	w.t.Helper()
	options := map[string]any{
		"protocolVersion": 4, "clientId": w.dev.ID, "clean": true, "keepalive": 60,
		"connectTimeout": waitLimit.Milliseconds(),
		"username":       w.user(), "password": token(w.t, w.dev.PrimaryKey, w.resource(), time.Hour),
	}
	for k, v := range changed {
		options[k] = v
	}
	w.js.tell(map[string]any{
		"do": "connect", "name": name, "url": w.url, "options": options,
		"trust": string(w.hub.CAPEM()), "servername": w.hub.HostName(),
	})
}

// connected connects and waits for the CONNACK.
func (w *world) connected(name string, changed map[string]any) event {
	w.t.Helper()
	w.connect(name, changed)
	return w.js.next("connected", name)
}

func (w *world) publish(name, topic, payload string, qos int) {
	w.t.Helper()
	w.js.tell(map[string]any{"do": "publish", "name": name, "topic": topic, "payload": payload, "qos": qos})
}

const (
	events      = "devices/dev-1/messages/events/"
	deviceBound = "devices/dev-1/messages/devicebound/"
)

func (w *world) subscribed(name string) {
	w.t.Helper()
	w.js.tell(map[string]any{"do": "subscribe", "name": name, "topic": deviceBound + "#", "qos": 1})
	e := w.js.next("subscribed", name)
	require.Empty(w.t, e.Text)
	require.Equal(w.t, 1, e.Code)
}

func TestMQTTJSSendsTelemetry(t *testing.T) {
	eachWay(t, func(w *world) {
		w.connected("a", nil)
		const n = 500
		for i := range n {
			bag := "%24.mid=" + fmt.Sprint(i) + "&%24.ct=application%2Fjson&" + url.QueryEscape("größe") +
				"=1%20%26%202%20%3D%203%2F%CE%A9"
			w.publish("a", events+bag, fmt.Sprintf(`{"n":%d}`, i), 1)
		}
		for i := range n {
			e := w.js.next("published", "a")
			require.Empty(w.t, e.Text)
			require.Equal(w.t, fmt.Sprintf(`{"n":%d}`, i), e.Payload)
		}
		require.NoError(w.t, w.hub.WaitMessages(soon(w.t), n))
		for i, m := range w.hub.Messages() {
			require.Equal(w.t, fmt.Sprint(i), m.MessageID)
			require.Equal(w.t, "application/json", m.ContentType)
			require.Equal(w.t, []hubdata.Property{{Name: "größe", Value: "1 & 2 = 3/Ω"}}, m.Properties)
			require.Equal(w.t, fmt.Sprintf(`{"n":%d}`, i), string(m.Body))
			require.EqualValues(w.t, 1, m.QoS)
		}
		w.publish("a", events, "not acknowledged", 0)
		require.NoError(w.t, w.hub.WaitMessages(soon(w.t), n+1))
		w.js.tell(map[string]any{"do": "end", "name": "a"})
		w.js.next("ended", "a")
		eventually(w.t, "the hub notices the close", func() bool { return w.hub.Connections("") == 0 })
	})
}

func TestMQTTJSReceivesMessages(t *testing.T) {
	eachWay(t, func(w *world) {
		keep := map[string]any{"clean": false}
		require.False(w.t, w.connected("a", keep).Session)
		w.subscribed("a")
		for i := range 40 {
			require.NoError(w.t, w.hub.SendC2D(w.dev.ID, hubdata.C2D{
				MessageID: fmt.Sprint("c ", i), Properties: []hubdata.Property{{Name: "ä/b", Value: "100 %"}},
				Body: fmt.Append(nil, i),
			}))
		}
		for i := range 40 {
			e := w.js.next("message", "a")
			require.Equal(w.t, fmt.Sprint(i), e.Payload)
			require.Equal(w.t, 1, e.QoS)
			require.False(w.t, e.Retain || e.Dup)
			require.Contains(w.t, e.Topic, deviceBound)
			values, err := url.ParseQuery(e.Topic[len(deviceBound):])
			require.NoError(w.t, err)
			require.Equal(w.t, fmt.Sprint("c ", i), values.Get("$.mid"))
			require.Equal(w.t, "100 %", values.Get("ä/b"))
		}
		require.NoError(w.t, w.hub.WaitC2D(soon(w.t), w.dev.ID, hubdata.C2DCompleted, 40))

		// The session survives the connection: no SUBSCRIBE on the next one.
		w.js.tell(map[string]any{"do": "end", "name": "a"})
		w.js.next("ended", "a")
		require.NoError(w.t, w.hub.SendC2D(w.dev.ID, hubdata.C2D{Body: []byte("while away")}))
		require.True(w.t, w.connected("b", keep).Session)
		require.Equal(w.t, "while away", w.js.next("message", "b").Payload)
		require.NoError(w.t, w.hub.WaitC2D(soon(w.t), w.dev.ID, hubdata.C2DCompleted, 41))

		w.js.tell(map[string]any{"do": "unsubscribe", "name": "b", "topic": deviceBound + "#"})
		require.Empty(w.t, w.js.next("unsubscribed", "b").Text)
		require.NoError(w.t, w.hub.SendC2D(w.dev.ID, hubdata.C2D{Body: []byte("nobody listens")}))
		w.subscribed("b")
		require.Equal(w.t, "nobody listens", w.js.next("message", "b").Payload)
	})
}

func TestTheHubRefusesMQTTJS(t *testing.T) {
	eachWay(t, func(w *world) {
		other, err := w.hub.AddDevice("dev-2")
		require.NoError(w.t, err)
		for name, c := range map[string]struct {
			changed map[string]any
			code    int
		}{
			"no token":             {map[string]any{"password": ""}, 5},
			"another device's key": {map[string]any{"password": token(w.t, other.PrimaryKey, w.resource(), time.Hour)}, 5},
			"another device's token": {map[string]any{"password": token(w.t, other.PrimaryKey, w.hub.HostName()+"/devices/dev-2",
				time.Hour)}, 5},
			"expired token": {map[string]any{"password": token(w.t, w.dev.PrimaryKey, w.resource(), -time.Hour)}, 5},
			"MQTT 5":        {map[string]any{"protocolVersion": 5}, 1},
			"MQTT 3.1":      {map[string]any{"protocolVersion": 3, "protocolId": "MQIsdp"}, 1},
		} {
			if name == "MQTT 3.1" && w.url[:3] == "wss" {
				continue // it would request another subprotocol, which is refused before MQTT begins
			}
			w.connect(name, c.changed)
			require.Equal(w.t, c.code, w.js.next("error", name).Code, name)
			w.js.next("closed", name)
		}
		w.connected("right", nil)
		require.Equal(w.t, 1, w.hub.Connections(""))
	})
}

func TestASecondMQTTJSTakesOverFromTheFirst(t *testing.T) {
	eachWay(t, func(w *world) {
		w.connected("first", nil)
		w.connected("second", nil)
		w.js.next("closed", "first")
		w.publish("second", events, "still here", 1)
		require.Empty(w.t, w.js.next("published", "second").Text)
		require.Equal(w.t, 1, w.hub.Connections(w.dev.ID))
	})
}

func TestTheHubClosesOnMQTTJS(t *testing.T) {
	eachWay(t, func(w *world) {
		for name, loss := range map[string]func(name string){
			"another device's topic": func(name string) { w.publish(name, "devices/dev-2/messages/events/", "", 1) },
			"no topic of a hub":      func(name string) { w.publish(name, "hello", "", 1) },
			"QoS 2":                  func(name string) { w.publish(name, events, "", 2) },
		} {
			w.connected(name, nil)
			loss(name)
			w.js.next("closed", name)
		}
		require.Zero(w.t, w.hub.Len())
	})
}

func TestMQTTJSPingsAndLeavesAWill(t *testing.T) {
	t.Parallel()
	eachWay(t, func(w *world) {
		w.connected("a", map[string]any{"keepalive": 6, "will": map[string]any{"topic": events + "left=yes",
			"payload": "gone",
			"qos":     1}})
		time.Sleep(10 * time.Second) // without a ping the hub closes the connection after 9 s
		require.Equal(w.t, 1, w.hub.Connections(w.dev.ID))
		w.js.tell(map[string]any{"do": "destroy", "name": "a"})
		require.NoError(w.t, w.hub.WaitMessages(soon(w.t), 1))
		m := w.hub.Messages()[0]
		require.Equal(w.t, "gone", string(m.Body))
		left, _ := m.Property("left")
		require.Equal(w.t, "yes", left)
	})
}

func TestMQTTJSReconnectsAfterACut(t *testing.T) {
	eachWay(t, func(w *world) {
		keep := map[string]any{"clean": false}
		w.connected("0", keep)
		w.subscribed("0")
		for i := range 5 {
			name, next := fmt.Sprint(i), fmt.Sprint(i+1)
			require.Equal(w.t, 1, w.hub.Drop(w.dev.ID))
			w.js.next("closed", name)
			require.NoError(w.t, w.hub.SendC2D(w.dev.ID, hubdata.C2D{Body: []byte(next)}))
			require.True(w.t, w.connected(next, keep).Session)
			require.Equal(w.t, next, w.js.next("message", next).Payload)
			// otherwise it is delivered again
			require.NoError(w.t, w.hub.WaitC2D(soon(w.t), w.dev.ID, hubdata.C2DCompleted, i+1))
		}
	})
}

// The hub refuses an MQTT 5 client in the format of MQTT 3.1.1, the only one that it knows.
func TestTheHubRefusesPahoV5(t *testing.T) {
	hub, dev := hubfixture.OpenDevice(t, nil, deviceID)
	addr, err := hub.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
	require.NoError(t, err)
	conn, err := tls.Dial("tcp", addr.String(), hub.ClientTLS())
	require.NoError(t, err)
	var answer recorder
	client := paho.NewClient(paho.ClientConfig{Conn: packets.NewThreadSafeConn(recording{conn, &answer})})
	_, err = client.Connect(soon(t), &paho.Connect{
		ClientID: dev.ID, CleanStart: true, KeepAlive: 60,
		UsernameFlag: true, Username: hub.HostName() + "/" + dev.ID + "/?api-version=2021-04-12",
		PasswordFlag: true, Password: []byte(token(t, dev.PrimaryKey, hub.HostName()+"/devices/"+dev.ID, time.Hour)),
	})
	require.Error(t, err)
	require.True(t, bytes.HasPrefix(answer.bytes(), []byte{0x20, 2, 0, 1}), "% x", answer.bytes())
	require.Zero(t, hub.Connections(""))
}
