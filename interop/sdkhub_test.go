package interop

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// sdkTransport is a connection type of the official device SDK.
type sdkTransport struct {
	name    string
	service int             // the port that the SDK connects to
	port    testbroker.Port // the hub's port for it
	amqp    bool
	settles bool // it supports abandon and reject
	inPlace bool // it renews a token on the connection
	web     bool // requests are independent and may be a batch; properties are headers, so they are ASCII
}

var sdkTransports = []sdkTransport{
	{name: "amqp", service: 5671, port: testbroker.PortAMQPS, amqp: true, settles: true, inPlace: true},
	{name: "amqp-ws", service: 443, port: testbroker.PortHTTPS, amqp: true, settles: true, inPlace: true},
	{name: "mqtt", service: 8883, port: testbroker.PortMQTTS},
	{name: "mqtt-ws", service: 443, port: testbroker.PortHTTPS},
	{name: "http", service: 443, port: testbroker.PortHTTPS, settles: true, web: true},
}

func wayOf(name string) sdkTransport {
	return sdkTransports[slices.IndexFunc(sdkTransports, func(w sdkTransport) bool { return w.name == name })]
}

// sdk is the official device SDK with a hub.
type sdk struct {
	*script
	sdkTransport
	hub *testbroker.Hub
}

// eachSDKTransport runs check for each transport, against a hub of its own.
func eachSDKTransport(t *testing.T, o *testbroker.Options, check func(t *testing.T, s *sdk)) {
	for _, way := range sdkTransports {
		t.Run(way.name, func(t *testing.T) { check(t, startSDK(t, way, hubfixture.Open(t, o))) })
	}
}

// startSDK starts the SDK with env, and redirects its port to the hub. It always redirects port
// 443, for uploads.
func startSDK(t testing.TB, way sdkTransport, hub *testbroker.Hub, env ...string) *sdk {
	s := &sdk{startScript(t, "device.js", env...), way, hub}
	web, err := hub.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	addr, err := hub.Listen(way.port, "127.0.0.1:0")
	require.NoError(t, err)
	s.tell(map[string]any{"do": "ports", "forward": [][]int{{443, web.(*net.TCPAddr).Port},
		{way.service, addr.(*net.TCPAddr).Port}}})
	s.next("done", "")
	return s
}

// open makes a client called name for a device.
func (s *sdk) open(name string, dev hubdata.Device, more map[string]any) {
	s.t.Helper()
	command := map[string]any{
		"do": "open", "name": name, "transport": s.name, "connectionString": dev.ConnectionString(),
		"trust": string(s.hub.CAPEM()),
	}
	for k, v := range more {
		command[k] = v
	}
	s.tell(command)
	require.Empty(s.t, s.next("opened", name).Text)
}

// telemetry sends n messages at a time and compares with the hub's log. The SDK retries each
// message that finds no connection after its own delay, and over HTTP it uses several connections,
// so the messages may arrive out of order. It returns the number of the connection of the last one.
func (s *sdk) telemetry(name, prefix string, n int, ordered bool) uint64 {
	s.t.Helper()
	properties := map[string]string{"größe": "1 & 2 = 3/Ω", "a+b#c": "100 %", "quote\"": "\\", "empty": ""}
	if s.web {
		properties = map[string]string{"a+b#c": "100 % & 2 = 3/", "empty": ""}
	}
	var messages []map[string]any
	for i := range n {
		messages = append(messages, map[string]any{
			"payload": fmt.Sprintf(`{"%s":%d}`, prefix, i), "id": fmt.Sprint(prefix, i), "correlation": "c/ &=",
			"contentType":     "application/json",
			"contentEncoding": "utf-8",
			"component":       "thermostat1", "properties": properties,
		})
	}
	s.tell(map[string]any{"do": "send", "name": name, "messages": messages})
	for range n {
		e := s.next("sent", name)
		require.Empty(s.t, e.Text, e.ID)
	}
	s.arrives(prefix, n)
	got := map[string]bool{}
	var connection uint64
	for _, m := range s.hub.Messages() {
		number, found := strings.CutPrefix(m.MessageID, prefix)
		if !found || got[number] {
			continue
		}
		if ordered && !s.web {
			require.Equal(s.t, fmt.Sprint(len(got)), number)
		}
		got[number] = true
		connection = m.Connection
		require.Equal(s.t, fmt.Sprintf(`{"%s":%s}`, prefix, number), string(m.Body))
		require.Equal(s.t, "c/ &= application/json utf-8 thermostat1", m.CorrelationID+" "+m.ContentType+" "+
			m.ContentEncoding+" "+m.Component)
		read := map[string]string{}
		for _, p := range m.Properties {
			read[p.Name] = p.Value
		}
		require.Equal(s.t, properties, read)
	}
	require.Len(s.t, got, n, "all have arrived")
	require.Empty(s.t, s.hub.Conflicts())
	return connection
}

// arrives waits until the hub has messages 0 to n-1 of a prefix: a gateway acknowledges them before
// it passes them on.
func (s *sdk) arrives(prefix string, n int) {
	s.t.Helper()
	require.NoError(s.t, s.hub.Wait(soon(s.t), func(log []hubdata.Message) bool {
		got := map[string]bool{}
		for i := range log {
			if strings.HasPrefix(log[i].MessageID, prefix) {
				got[log[i].MessageID] = true
			}
		}
		return len(got) == n
	}), "%d messages %q", n, prefix)
}

// sendC2D sends a cloud-to-device message to the device, has it settled, and checks its state at
// the hub.
func (s *sdk) sendC2D(name, deviceID, body, outcome string, want hubdata.C2DState) {
	s.t.Helper()
	require.NoError(s.t, s.hub.SendC2D(deviceID, hubdata.C2D{
		MessageID: "id of " + body, CorrelationID: "c", ContentType: "text/plain",
		Properties: []hubdata.Property{{Name: s.property(), Value: "100 %"}}, Body: []byte(body),
	}))
	e := s.taken(name, body)
	if outcome == "abandon" {
		s.settle(name, e.Delivery, outcome)
		e = s.taken(name, body)
		outcome = "complete"
	}
	s.settle(name, e.Delivery, outcome)
	s.becomes(deviceID, body, want)
}

func (s *sdk) taken(name, body string) event {
	s.t.Helper()
	e := s.next("message", name)
	require.Equal(s.t, body, e.Payload)
	require.Equal(s.t, "id of "+body, e.ID)
	require.Equal(s.t, "c", e.Correlation)
	require.Contains(s.t, strings.ToLower(e.To), "/messages/devicebound")
	// over HTTP the SDK leaves the prefix
	require.Equal(s.t, "100 %", e.Properties[s.property()]+e.Properties["iothub-app-"+s.property()])
	return e
}

// property returns the name of a property of cloud-to-device messages.
func (s *sdk) property() string {
	if s.web {
		return "a-b"
	}
	return "ä/b"
}

// drop resets all connections. Over HTTP the SDK does not repeat a request that it writes to a kept
// connection before it reads the reset; so drop waits until the SDK knows of all resets.
func (s *sdk) drop() {
	s.t.Helper()
	s.tell(map[string]any{"do": "resets"})
	s.next("watching", "")
	if n := s.hub.Drop(""); !s.web {
		require.Equal(s.t, 1, n)
	}
	s.next("gone", "")
}

func (s *sdk) settle(name string, delivery int, outcome string) {
	s.t.Helper()
	s.tell(map[string]any{"do": "settle", "name": name, "delivery": delivery, "outcome": outcome})
	e := s.next("settled", name)
	require.Empty(s.t, e.Text, outcome)
}

func (s *sdk) becomes(deviceID, body string, want hubdata.C2DState) {
	s.t.Helper()
	require.NoError(s.t, s.hub.Wait(soon(s.t), func([]hubdata.Message) bool {
		for _, c := range s.hub.C2DLog(deviceID) {
			if string(c.C2D.Body) == body && c.State == want {
				return true
			}
		}
		return false
	}), "%s: want %v of %+v", body, want, s.hub.C2DLog(deviceID))
}

// all runs all operations of a device.
func (s *sdk) all(name, deviceID, round string, ordered bool) {
	s.t.Helper()
	n := 100
	if s.web {
		n = 10 // each with a TLS handshake
	}
	s.telemetry(name, round, n, ordered)
	done := "completed"
	s.sendC2D(name, deviceID, round+" complete", "complete", hubdata.C2DCompleted)
	if s.settles {
		s.sendC2D(name, deviceID, round+" abandon", "abandon", hubdata.C2DCompleted)
		s.sendC2D(name, deviceID, round+" reject", "reject", hubdata.C2DRejected)
		done = "completed, abandoned and delivered again, rejected"
	}
	seen(s.t, "%s: %d messages, lost 0, properties as sent; cloud-to-device messages %s", round, n, done)
}

// batch sends a batch of the hub's largest size, if the SDK has batches. Every second message has a
// component.
func (s *sdk) batch(t *testing.T) {
	const most = 500
	components := [2]string{"", "thermostat1"}
	before := s.hub.Len()
	messages := make([]map[string]any, most)
	for i := range messages {
		messages[i] = map[string]any{"payload": fmt.Sprint("body ", i), "properties": map[string]string{"n": fmt.Sprint(i)}}
		if c := components[i%2]; c != "" {
			messages[i]["component"] = c
		}
	}
	s.tell(map[string]any{"do": "batch", "name": "a", "messages": messages})
	answer := s.next("batch", "a").Text
	if !s.web {
		require.Contains(t, answer, "NotImplementedError")
		seen(t, "a batch: %s", answer)
		return
	}
	require.Empty(t, answer)
	got := s.hub.Messages()[before:]
	require.Len(t, got, most)
	for i := range got {
		require.Equal(t, fmt.Sprint("body ", i), string(got[i].Body))
		require.Equal(t, []hubdata.Property{{Name: "n", Value: fmt.Sprint(i)}}, got[i].Properties)
		require.Equal(t, components[i%2], got[i].Component)
	}
	seen(t, "a batch of %d: arrived in order, properties as sent", most)
}

func TestDeviceSDK(t *testing.T) {
	t.Parallel()
	eachSDKTransport(t, nil, func(t *testing.T, s *sdk) {
		dev, err := s.hub.AddDevice(deviceID)
		require.NoError(t, err)
		s.open("a", dev, nil)
		s.tell(map[string]any{"do": "listen", "name": "a"})
		s.all("a", deviceID, "first connection", true)
		s.batch(t)
		for i := range 2 {
			s.drop()
			s.all("a", deviceID, fmt.Sprint("after reset ", i+1), false)
		}
		s.tell(map[string]any{"do": "close", "name": "a"})
		require.Empty(t, s.next("closed", "a").Text)
		if !s.web {
			eventually(t, "the hub notices the close", func() bool { return s.hub.Connections(deviceID) == 0 })
		}
	})
}

func TestDeviceSDKRenewsItsToken(t *testing.T) {
	t.Parallel()
	eachSDKTransport(t, &testbroker.Options{TokenGrace: -1}, func(t *testing.T, s *sdk) {
		t.Parallel()
		dev, err := s.hub.AddDevice(deviceID)
		require.NoError(t, err)
		s.open("a", dev, map[string]any{"life": 10, "margin": 6})
		s.tell(map[string]any{"do": "listen", "name": "a"})
		s.sendC2D("a", deviceID, "before", "complete", hubdata.C2DCompleted)
		before := s.telemetry("a", "before", 1, true)
		began, renewals := time.Now(), 0
		for ; time.Since(began) < 11*time.Second; renewals++ { // longer than the validity of a token
			s.next("renewed", "a")
		}
		s.all("a", deviceID, "after renewal", false)
		how := "on new connections"
		switch {
		case s.inPlace:
			how = "in place"
		case s.web:
			how = "for the requests that follow"
		}
		if later := s.telemetry("a", "later", 1, true); !s.web {
			require.Equal(t, s.inPlace, later == before, "the connection is the first one")
		}
		seen(t, "%d renewals in %.0f s, %s, with tokens for 10 s", renewals, time.Since(began).Seconds(), how)
	})
}

func TestDeviceSDKWithACertificate(t *testing.T) {
	t.Parallel()
	eachSDKTransport(t, nil, func(t *testing.T, s *sdk) {
		cert := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
		dev, err := s.hub.AddDeviceX509("dev-x", testbroker.Thumbprint(cert.Leaf))
		require.NoError(t, err)
		s.open("a", dev, map[string]any{"cert": string(certPEM(cert.Leaf)), "key": string(keyPEM(t, cert))})
		s.tell(map[string]any{"do": "listen", "name": "a"})
		s.all("a", "dev-x", "X.509", true)
		s.drop()
		s.all("a", "dev-x", "X.509 after reset", false)
	})
}

func TestDeviceSDKIsRefused(t *testing.T) {
	eachSDKTransport(t, nil, func(t *testing.T, s *sdk) {
		dev, err := s.hub.AddDevice(deviceID)
		require.NoError(t, err)
		other, err := s.hub.AddDevice("dev-2")
		require.NoError(t, err)
		forged := dev
		forged.PrimaryKey = other.PrimaryKey
		s.tell(map[string]any{
			"do": "open", "name": "a", "transport": s.name, "connectionString": forged.ConnectionString(),
			"trust": string(s.hub.CAPEM()),
		})
		e := s.next("opened", "a")
		if s.web { // over HTTP nothing is sent yet
			require.Empty(t, e.Text)
			s.tell(map[string]any{"do": "send", "name": "a", "messages": []map[string]any{{"payload": "x"}}})
			e = s.next("sent", "a")
		}
		require.Contains(t, e.Text, "UnauthorizedError")
		seen(t, "another device's key: %s", e.Text)
		s.open("b", dev, nil)
		s.telemetry("b", "allowed", 1, true)
	})
}
