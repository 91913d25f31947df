package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// profile is a hub with the MQTT v5 connection profile and node/next.js, a client that shares no
// code with it.
type profile struct {
	t    testing.TB
	hub  *testbroker.Hub
	js   *script
	url  string
	cert tls.Certificate
}

// profileWays are the ports of such a hub.
var profileWays = []struct {
	name, scheme, path string
	port               testbroker.Port
}{
	{"over TLS", "mqtts", "", testbroker.PortMQTTS},
	{"over WebSocket", "wss", "/$iothub/websocket", testbroker.PortHTTPS},
}

func eachProfileWay(t *testing.T, check func(p *profile)) {
	for _, way := range profileWays {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			h, err := testbroker.New(&testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{
				Topics: []string{"site/{deviceId}/alarms"},
			}})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, h.Close()) })
			a, err := h.Listen(way.port, "127.0.0.1:0")
			require.NoError(t, err)
			p := &profile{t: t, hub: h, js: startScript(t, "next.js"), url: way.scheme + "://" + a.String() + way.path}
			p.cert = testbroker.NewClientCert(deviceID, time.Time{}, time.Time{})
			_, err = h.AddDeviceX509(deviceID, testbroker.Thumbprint(p.cert.Leaf))
			require.NoError(t, err)
			check(p)
		})
	}
}

// connect starts to connect the client name; changed overrides the valid fields.
func (p *profile) connect(name string, changed map[string]any) {
	p.t.Helper()
	all := map[string]any{
		"do": "connect", "name": name, "url": p.url, "id": deviceID, "expiry": 600,
		"cert": string(certPEM(p.cert.Leaf)), "key": string(keyPEM(p.t, p.cert)),
		"trust": string(p.hub.CAPEM()), "servername": p.hub.HostName(),
	}
	for k, v := range changed {
		all[k] = v
	}
	p.js.tell(all)
}

// born connects and waits for the birth-ack.
func (p *profile) born(name string, changed map[string]any) (connected, ack event) {
	p.t.Helper()
	p.connect(name, changed)
	connected = p.js.next("connected", name)
	require.Equal(p.t, 1, p.js.next("subscribed", name).Code)
	return connected, p.js.next("born", name)
}

func (p *profile) do(command, name string, fields map[string]any) {
	p.t.Helper()
	all := map[string]any{"do": command, "name": name}
	for k, v := range fields {
		all[k] = v
	}
	p.js.tell(all)
}

// hexID is the length of a nonce or a request id in the events of the script.
const hexID = 32

func TestIndependentProfileClientSendsTelemetry(t *testing.T) {
	t.Parallel()
	eachProfileWay(t, func(p *profile) {
		connected, ack := p.born("a", nil)
		require.False(p.t, connected.Session)
		require.Equal(p.t, [2]int64{1, 1}, [2]int64{ack.Desired, ack.Reported})
		const n = 200
		for i := range n {
			p.do("send", "a", map[string]any{"payload": fmt.Sprintf(`{"n":%d}`, i), "id": fmt.Sprint(i),
				"contentType": "application/json", "properties": map[string]string{"größe": "1 & 2 = 3/Ω"}})
		}
		for range n {
			e := p.js.next("published", "a")
			require.Empty(p.t, e.Text)
			require.Zero(p.t, e.Code)
		}
		require.NoError(p.t, p.hub.WaitMessages(soon(p.t), n))
		for i, m := range p.hub.Messages() {
			require.Equal(p.t, fmt.Sprint(i), m.MessageID)
			require.Equal(p.t, "application/json", m.ContentType)
			require.Equal(p.t, []hubdata.Property{{Name: "größe", Value: "1 & 2 = 3/Ω"}}, m.Properties)
			require.Equal(p.t, fmt.Sprintf(`{"n":%d}`, i), string(m.Body))
		}
		seen(p.t, "%d messages with properties", n)
	})
}

func TestIndependentProfileClientPublishesOnTopics(t *testing.T) {
	t.Parallel()
	eachProfileWay(t, func(p *profile) {
		p.born("a", nil)
		p.do("send", "a", map[string]any{"topic": "site/" + deviceID + "/alarms", "payload": "hot"})
		require.Zero(p.t, p.js.next("published", "a").Code)
		require.NoError(p.t, p.hub.WaitMessages(soon(p.t), 1))
		require.Equal(p.t, "hot", string(p.hub.Messages()[0].Body))
		for _, topic := range []string{"site/other/alarms", "site/{deviceId}/alarms", "elsewhere", "ih/other/srv/telemetry"} {
			p.do("send", "a", map[string]any{"topic": topic, "payload": "not mine"})
			e := p.js.next("published", "a")
			require.Equal(p.t, 0x87, e.Code, topic)
			seen(p.t, "a message on %s: %s", topic, e.Text)
		}
		own := "ih/" + deviceID + "/dev/#"
		for _, filter := range []string{"#", "site/" + deviceID + "/#", "ih/other/dev/#", "$share/g/" + own} {
			p.do("subscribe", "a", map[string]any{"topic": filter})
			require.GreaterOrEqual(p.t, p.js.next("asked", "a").Code, 0x80, filter)
		}
		require.Equal(p.t, 1, p.hub.Len())
		require.Equal(p.t, 1, p.hub.Connections(deviceID), "a refused message ends no connection")
	})
}

func TestIndependentProfileClientTwin(t *testing.T) {
	t.Parallel()
	eachProfileWay(t, func(p *profile) {
		_, err := p.hub.PatchDesired(deviceID, `{"fan":1}`)
		require.NoError(p.t, err)
		_, ack := p.born("a", map[string]any{"versions": map[string]any{"pushDesired": true, "pushReported": true}})
		require.EqualValues(p.t, 2, ack.Desired)
		first := p.js.next("pushed", "a")
		require.Equal(p.t, "desired", first.Text)
		require.Equal(p.t, 2, first.Count)
		require.JSONEq(p.t, `{"fan":1}`, first.Payload)
		require.Equal(p.t, "reported", p.js.next("pushed", "a").Text)

		_, err = p.hub.PatchDesired(deviceID, `{"fan":null,"led":{"on":true}}`)
		require.NoError(p.t, err)
		patch := p.js.next("desired", "a")
		require.Equal(p.t, 3, patch.Count)
		require.JSONEq(p.t, `{"fan":null,"led":{"on":true}}`, patch.Payload)

		p.do("report", "a", map[string]any{"ifMatch": 1, "payload": `{"rpm":7}`})
		r := p.js.next("reported", "a")
		require.Equal(p.t, [2]int{1, 2}, [2]int{r.Code, r.Count}, "accepted, version 2")
		require.Len(p.t, r.Correlation, hexID)
		p.do("report", "a", map[string]any{"ifMatch": 99, "payload": `{"rpm":8}`})
		r = p.js.next("reported", "a")
		require.Equal(p.t, [2]int{2, 2}, [2]int{r.Code, r.Count}, "another version was expected; 2 stands")
		p.do("report", "a", map[string]any{"payload": `no json`})
		require.Equal(p.t, 3, p.js.next("reported", "a").Code, "no JSON")

		p.do("get", "a", map[string]any{"sections": 3})
		got := p.js.next("got", "a")
		require.Equal(p.t, [2]int64{3, 2}, [2]int64{got.Desired, got.Reported})
		require.JSONEq(p.t, `{"led":{"on":true}}`, got.Properties["desired"])
		require.JSONEq(p.t, `{"rpm":7}`, got.Properties["reported"])
		p.do("get", "a", map[string]any{"sections": 1, "desired": 3})
		got = p.js.next("got", "a")
		require.Equal(p.t, [2]int64{3, 2}, [2]int64{got.Desired, got.Reported})
		require.Empty(p.t, got.Properties["desired"], "the version is the one that the client has")
	})
}

func TestIndependentProfileClientMethods(t *testing.T) {
	t.Parallel()
	eachProfileWay(t, func(p *profile) {
		p.born("a", nil)
		const n = 20
		for i := range n {
			payload := fmt.Sprintf(`{"n":%d}`, i)
			ctx, cancel := context.WithTimeout(p.t.Context(), waitLimit)
			r, err := p.hub.CallMethod(ctx, deviceID, hubdata.MethodCall{Name: "echo", Payload: []byte(payload)})
			cancel()
			require.NoError(p.t, err)
			require.Equal(p.t, 200, r.Status)
			require.JSONEq(p.t, payload, string(r.Payload))
			require.Equal(p.t, payload, p.js.next("executed", "a").Payload)
		}
		_, err := p.hub.CallMethod(soon(p.t), deviceID, hubdata.MethodCall{Name: "reboot"})
		require.Error(p.t, err)
		require.Equal(p.t, "reboot", p.js.wait("the probe", func(e event) bool {
			return e.On == "probed" && e.Text == "reboot"
		}).Text)
		require.Equal(p.t, n, p.js.count("executed", "a"), "a method that the client refused")
		seen(p.t, "%d methods; a refused one: %v", n, err)
	})
}

func TestIndependentProfileClientIsTakenOver(t *testing.T) {
	t.Parallel()
	eachProfileWay(t, func(p *profile) {
		p.born("a", nil)
		connected, _ := p.born("b", nil)
		require.True(p.t, connected.Session, "the session goes to the new connection")
		require.Equal(p.t, 0x8E, p.js.next("disconnected", "a").Code)
		p.js.next("closed", "a")
		p.do("end", "b", nil)
		p.js.next("ended", "b")
		connected, _ = p.born("c", map[string]any{"expiry": 0})
		require.True(p.t, connected.Session, "the session outlives DISCONNECT")
		p.do("destroy", "c", nil)
		p.js.next("closed", "c")
		eventually(p.t, "the hub notices the loss", func() bool { return p.hub.Connections(deviceID) == 0 })
		connected, _ = p.born("d", nil)
		require.False(p.t, connected.Session, "an expiry of 0 ends the session with its connection")
	})
}

func TestIndependentProfileClientIsRefused(t *testing.T) {
	t.Parallel()
	eachProfileWay(t, func(p *profile) {
		other := testbroker.NewClientCert(deviceID, time.Time{}, time.Time{})
		for _, row := range []struct {
			name    string
			changed map[string]any
		}{
			{"no user name", map[string]any{"user": ""}},
			{"a password", map[string]any{"options": map[string]any{"password": "SharedAccessSignature sr=hub&sig=x&se=1"}}},
			{"an unknown device", map[string]any{"id": "stranger"}},
			{"another certificate", map[string]any{"cert": string(certPEM(other.Leaf)), "key": string(keyPEM(p.t, other))}},
		} {
			p.connect(row.name, row.changed)
			e := p.js.next("error", row.name)
			require.Contains(p.t, []int{0x85, 0x86, 0x87}, e.Code, row.name)
			seen(p.t, "%s: %s", row.name, e.Text)
		}
		require.Zero(p.t, p.hub.Connections(deviceID))
	})
}

func TestIndependentProfileClientSeesOldNonces(t *testing.T) {
	t.Parallel()
	eachProfileWay(t, func(p *profile) {
		p.hub.Inject(fault.Fault{Kind: fault.MisnameDispatch, Message: "desired-patch", Times: 1})
		p.born("a", nil)
		for n := range 2 {
			_, err := p.hub.PatchDesired(deviceID, fmt.Sprintf(`{"n":%d}`, n))
			require.NoError(p.t, err)
		}
		p.js.next("foreign patch", "a")
		require.Equal(p.t, 3, p.js.next("desired", "a").Count)
	})
}
