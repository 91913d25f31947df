package interop

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// The hub's node names for the device of the tests.
const (
	amqpEvents      = "/devices/dev-1/messages/events"
	amqpDeviceBound = "/devices/dev-1/messages/devicebound"
)

// rheaWorld is a hub with a device, and rhea as its client.
type rheaWorld struct {
	*script
	hub  *testbroker.Hub
	dev  hubdata.Device
	port int
	url  string // WebSocket URL; empty: TLS
}

// eachRheaHubWay runs check against a new hub for each port.
func eachRheaHubWay(t *testing.T, check func(t *testing.T, w *rheaWorld)) {
	for _, way := range []struct {
		name string
		port testbroker.Port
		web  bool
	}{
		{"over TLS", testbroker.PortAMQPS, false},
		{"over WebSocket", testbroker.PortHTTPS, true},
	} {
		t.Run(way.name, func(t *testing.T) {
			w := &rheaWorld{script: startScript(t, "rhea.js")}
			w.hub, w.dev = hubfixture.OpenDevice(t, nil, deviceID)
			addr, err := w.hub.Listen(way.port, "127.0.0.1:0")
			require.NoError(t, err)
			w.port = addr.(*net.TCPAddr).Port
			if way.web {
				w.url = fmt.Sprintf("wss://localhost:%d/$iothub/websocket", w.port)
			}
			check(t, w)
		})
	}
}

func (w *rheaWorld) resource() string { return w.hub.HostName() + "/devices/" + w.dev.ID }

// connect makes a client, without SASL unless more enables it.
func (w *rheaWorld) connect(name string, more map[string]any) {
	w.t.Helper()
	command := map[string]any{
		"do": "connect", "name": name, "port": w.port, "url": w.url, "trust": string(w.hub.CAPEM()),
		"servername": w.hub.HostName(),
	}
	for k, v := range more {
		command[k] = v
	}
	w.tell(command)
}

// put puts a token and returns the status.
func (w *rheaWorld) put(name, token string) (int, string) {
	w.t.Helper()
	w.tell(map[string]any{"do": "token", "name": name, "id": name + time.Now().String(), "audience": w.resource(),
		"token": token})
	e := w.next("token", name)
	return e.Code, e.Text
}

// ready connects a client and authenticates it by CBS.
func (w *rheaWorld) ready(name string) {
	w.t.Helper()
	w.connect(name, nil)
	w.next("connected", name)
	status, description := w.put(name, token(w.t, w.dev.PrimaryKey, w.resource(), time.Hour))
	require.Equal(w.t, 200, status, description)
}

// attach opens a link and waits for it.
func (w *rheaWorld) attach(name, kind, link, address string, more map[string]any) {
	w.t.Helper()
	command := map[string]any{"do": kind, "name": name, "link": link, "address": address}
	for k, v := range more {
		command[k] = v
	}
	w.tell(command)
	w.wait(fmt.Sprintf("link %q of %q", link, name),
		func(e event) bool { return e.is("attached", name) && e.Link == link })
}

func (w *rheaWorld) send(name, link string, n int, body func(i int) string) {
	w.t.Helper()
	var messages []map[string]any
	for i := range n {
		messages = append(messages, map[string]any{
			"payload": body(i), "id": "id of " + body(i), "correlation": "c", "contentType": "text/plain",
			"contentEncoding": "utf-8",
			"component":       "thermostat1", "properties": map[string]any{"größe": "1 & 2 = 3/Ω"},
		})
	}
	w.tell(map[string]any{"do": "send", "name": name, "link": link, "messages": messages})
}

func TestRheaClient(t *testing.T) {
	eachRheaHubWay(t, func(t *testing.T, w *rheaWorld) {
		w.authentication(t)
		w.telemetry(t)
		w.cloudToDevice(t)
		w.ends(t)
	})
}

func (w *rheaWorld) authentication(t *testing.T) {
	other, err := w.hub.AddDevice("dev-2")
	require.NoError(t, err)
	good := token(t, w.dev.PrimaryKey, w.resource(), time.Hour)
	for name, more := range map[string]map[string]any{
		"no SASL":   nil,
		"ANONYMOUS": {"anonymous": true},
	} {
		w.connect(name, more)
		w.next("connected", name)
		w.tell(map[string]any{"do": "sender", "name": name, "link": "early", "address": amqpEvents})
		require.Equal(t, "amqp:unauthorized-access", w.next("detached", name).Condition)
		status, description := w.put(name, token(t, other.PrimaryKey, w.resource(), time.Hour))
		require.Equal(t, 401, status)
		require.NotEmpty(t, description)
		status, _ = w.put(name, good)
		require.Equal(t, 200, status)
		w.attach(name, "sender", "events", amqpEvents, nil)
		w.send(name, "events", 1, func(int) string { return name })
		require.Equal(t, "accepted", w.next("settled", name).Outcome)
	}
	w.connect("PLAIN", map[string]any{"username": "dev-1@sas.hub", "password": good})
	w.next("connected", "PLAIN")
	w.attach("PLAIN", "sender", "events", amqpEvents, nil)
	w.send("PLAIN", "events", 1, func(int) string { return "PLAIN" })
	require.Equal(t, "accepted", w.next("settled", "PLAIN").Outcome)
	w.connect("wrong", map[string]any{"username": "dev-1@sas.hub", "password": token(t, other.PrimaryKey, w.resource(),
		time.Hour)})
	refusal := w.next("refused", "wrong")
	require.Equal(t, "amqp:unauthorized-access", refusal.Condition)
	seen(t, "CBS without SASL and with ANONYMOUS, PLAIN: a message each was accepted; early link: unauthorized; wrong "+
		"token: 401, by PLAIN: %s", refusal.Text)
}

func (w *rheaWorld) telemetry(t *testing.T) {
	const n = 700 // more than the hub's credit
	w.ready("t")
	before := w.hub.Len()
	w.attach("t", "sender", "events", amqpEvents, nil)
	w.send("t", "events", n, func(i int) string { return fmt.Sprint("t", i) })
	for i := range n {
		e := w.next("settled", "t")
		require.Equal(t, "accepted", e.Outcome)
		require.Equal(t, fmt.Sprint("id of t", i), e.ID)
	}
	for i, m := range w.hub.Messages()[before:] {
		require.Equal(t, fmt.Sprint("t", i), string(m.Body))
		require.Equal(t, fmt.Sprint("id of t", i), m.MessageID)
		require.Equal(t, "c text/plain utf-8 thermostat1", m.CorrelationID+" "+m.ContentType+" "+m.ContentEncoding+" "+
			m.Component)
		require.Equal(t, []hubdata.Property{{Name: "größe", Value: "1 & 2 = 3/Ω"}}, m.Properties)
	}
	require.Equal(t, before+n, w.hub.Len())
	w.attach("t", "sender", "settled", amqpEvents, map[string]any{"settled": true})
	w.send("t", "settled", 1, func(int) string { return "sent settled" })
	require.NoError(t, w.hub.WaitMessages(soon(t), before+n+1))
	w.hub.Inject(fault.Fault{Kind: fault.RejectMessage, Condition: "com.microsoft:device-container-throttled",
		Description: "slow down"})
	w.send("t", "events", 1, func(int) string { return "rejected" })
	e := w.next("settled", "t")
	require.Equal(t, "rejected com.microsoft:device-container-throttled slow down", e.Outcome+" "+e.Condition+" "+e.Text)
	w.tell(map[string]any{"do": "sender", "name": "t", "link": "nowhere", "address": "/nowhere"})
	e = w.next("detached", "t")
	seen(t, "%d messages: accepted, in order, properties as sent; one sent settled; one rejected with a condition; link "+
		"to nowhere: %s", n, e.Condition)
}

func (w *rheaWorld) cloudToDevice(t *testing.T) {
	for _, second := range []bool{false, true} {
		name := fmt.Sprintf("c %v", second)
		w.ready(name)
		w.attach(name, "receiver", "bound", amqpDeviceBound, map[string]any{"credit": 10, "second": second})
		sendC2D := func(what string) string {
			body := what + " " + name
			require.NoError(t, w.hub.SendC2D(w.dev.ID, hubdata.C2D{
				MessageID: "id of " + body, Properties: []hubdata.Property{{Name: "ä/b", Value: "100 %"}}, Body: []byte(body),
			}))
			return body
		}
		deliver := func(body string, times int) event {
			e := w.next("message", name)
			require.Equal(t, body, e.Payload)
			require.Equal(t, "id of "+body, e.ID)
			require.Equal(t, amqpDeviceBound, e.To)
			require.Equal(t, map[string]string{"ä/b": "100 %"}, e.Properties)
			require.Equal(t, fmt.Sprint(times-1), e.Annotations["iothub-deliverycount"])
			return e
		}
		settle := func(e event, outcome string) {
			w.tell(map[string]any{"do": "settle", "name": name, "delivery": e.Delivery, "outcome": outcome,
				"condition": "test:no",
				"text":      "not for me"})
		}
		becomes := func(body string, want hubdata.C2DState) {
			require.NoError(t, w.hub.Wait(soon(t), func([]hubdata.Message) bool {
				for _, c := range w.hub.C2DLog(w.dev.ID) {
					if string(c.C2D.Body) == body && c.State == want {
						return true
					}
				}
				return false
			}), "%s: want %v", body, want)
		}
		body := sendC2D("accept")
		settle(deliver(body, 1), "accepted")
		becomes(body, hubdata.C2DCompleted)
		body = sendC2D("reject")
		settle(deliver(body, 1), "rejected")
		becomes(body, hubdata.C2DRejected)
		body = sendC2D("release")
		settle(deliver(body, 1), "released")
		settle(deliver(body, 2), "modified")
		settle(deliver(body, 3), "accepted")
		becomes(body, hubdata.C2DCompleted)
		body = sendC2D("cut")
		deliver(body, 1)
		w.hub.Drop(w.dev.ID)
		w.next("closed", name)
		name += " again"
		w.ready(name)
		w.attach(name, "receiver", "bound", amqpDeviceBound, map[string]any{"credit": 10, "second": second})
		settle(deliver(body, 2), "accepted")
		becomes(body, hubdata.C2DCompleted)
		seen(t, "receiver settles second: %v: accepted, rejected, released, modified; connection reset with an "+
			"unsettled message: redelivered on the next one", second)
	}
}

func (w *rheaWorld) ends(t *testing.T) {
	w.ready("e")
	w.attach("e", "sender", "events", amqpEvents, nil)
	require.Positive(t, w.hub.DetachLinks(w.dev.ID, fault.LinkTelemetry,
		hubdata.AMQPError{Condition: "amqp:link:detach-forced"}))
	require.Equal(t, "amqp:link:detach-forced", w.next("detached", "e").Condition)
	w.attach("e", "sender", "once more", amqpEvents, nil)
	w.tell(map[string]any{"do": "detach", "name": "e", "link": "once more"})
	require.Empty(t, w.next("detached", "e").Condition)
	require.Positive(t, w.hub.CloseAMQP(w.dev.ID, hubdata.AMQPError{Condition: "amqp:connection:forced",
		Description: "as planned"}))
	require.Equal(t, "amqp:connection:forced", w.next("refused", "e").Condition)
	w.ready("f")
	w.tell(map[string]any{"do": "end", "name": "f"})
	eventually(t, "the hub notices the close", func() bool { return w.hub.Connections("") == 0 })
	seen(t, "link detached and connection closed by the hub with conditions, detached and closed by the client: each "+
		"was noticed")
}
