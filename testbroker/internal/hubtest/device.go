package hubtest

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Topics of devices.
const (
	TwinResults   = "$iothub/twin/res/#"
	DesiredTopics = "$iothub/twin/PATCH/properties/desired/#"
	TwinGet       = "$iothub/twin/GET/?$rid="
	TwinPatch     = "$iothub/twin/PATCH/properties/reported/?$rid="
	MethodTopics  = "$iothub/methods/POST/#"
	MethodAnswer  = "$iothub/methods/res/"
)

// GoldenKey encodes the bytes 00 to 1f.
const GoldenKey = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// DeviceBound is the filter for C2D messages to dev-1.
const DeviceBound = "devices/dev-1/messages/devicebound/#"

// A Packet is a PUBLISH from the hub.
type Packet struct {
	QoS   byte
	DUP   bool
	Topic string
	ID    uint16
	Body  string
}

// ReadPublish reads a PUBLISH.
func ReadPublish(w *Wire) Packet {
	w.T.Helper()
	first, err := w.In.Peek(1)
	require.NoError(w.T, err)
	body := w.Expect(3)
	n := binary.BigEndian.Uint16(body)
	c := Packet{QoS: first[0] >> 1 & 3, DUP: first[0]&8 != 0, Topic: string(body[2 : 2+n])}
	require.Zero(w.T, first[0]&1, "RETAIN")
	body = body[2+n:]
	if c.QoS > 0 {
		c.ID = binary.BigEndian.Uint16(body)
		body = body[2:]
	}
	c.Body = string(body)
	return c
}

// ReadBodies reads PUBLISH packets and returns their bodies, with a plus sign for DUP.
func ReadBodies(w *Wire, n int) (all []string) {
	w.T.Helper()
	for range n {
		c := ReadPublish(w)
		if c.DUP {
			c.Body = "+" + c.Body
		}
		all = append(all, c.Body)
	}
	return all
}

// Ack acknowledges a message.
func Ack(w *Wire, id uint16) {
	w.T.Helper()
	w.Send([]byte{0x40, 2, byte(id >> 8), byte(id)})
}

// Quiet checks that the hub sends nothing more by itself.
func Quiet(w *Wire) {
	w.T.Helper()
	synctest.Wait()
	w.Ping()
}

// Receiver logs in and subscribes to C2D messages.
func Receiver(t testing.TB, h *testbroker.Hub, d hubdata.Device, qos byte) *Wire {
	w := Login(t, h, d)
	filter := DeviceBound
	if d.ModuleID != "" {
		filter = "devices/dev-1/modules/" + d.ModuleID + "/messages/devicebound/#"
	}
	require.Equal(t, []byte{qos}, w.Subscribe(qos, filter))
	return w
}

// Keeper connects with CleanSession=0 and returns the session-present flag.
func Keeper(t testing.TB, h *testbroker.Hub, d hubdata.Device) (*Wire, byte) {
	c := ConnectOf(d)
	c.Flags = 0
	w := Dial(t, h)
	answer := w.Connect(c)
	require.Zero(t, answer[1])
	return w, answer[0]
}

// Received reads a PUBLISH with QoS 0.
func Received(w *Wire) (topic, body string) {
	w.T.Helper()
	first, err := w.In.Peek(1)
	require.NoError(w.T, err)
	require.Equal(w.T, byte(0x30), first[0], "no DUP, QoS 0, no RETAIN")
	p := w.Expect(3)
	n := int(p[0])<<8 | int(p[1])
	return string(p[2 : 2+n]), string(p[2+n:])
}

// Request publishes with QoS 0 and reads the answer.
func Request(w *Wire, topic, body string) (answerTopic, answer string) {
	w.T.Helper()
	w.Send(PublishBytes(0, 0, topic, body))
	return Received(w)
}

// Asked reads a method request and returns its id.
func Asked(w *Wire, name string) (rid, payload string) {
	w.T.Helper()
	topic, payload := Received(w)
	rid, ok := strings.CutPrefix(topic, "$iothub/methods/POST/"+name+"/?$rid=")
	require.True(w.T, ok, topic)
	return rid, payload
}

// AnswerCall answers the request of a method.
func AnswerCall(w *Wire, status int, rid, payload string) {
	w.T.Helper()
	w.Send(PublishBytes(0, 0, fmt.Sprintf("%s%d/?$rid=%s", MethodAnswer, status, rid), payload))
}

// Calling is an open call.
type Calling struct {
	t      testing.TB
	Done   chan struct{}
	Answer hubdata.MethodResult
	Err    error
}

// Result waits for the result of the call, which must succeed.
func (c *Calling) Result() hubdata.MethodResult {
	c.t.Helper()
	<-c.Done
	require.NoError(c.t, c.Err)
	return c.Answer
}

// code returns the code of the error with which the call must fail.
func (c *Calling) Code() int {
	c.t.Helper()
	<-c.Done
	return CodeOf(c.t, c.Err)
}

// Call begins a call of a method.
func Call(t testing.TB, h *testbroker.Hub, id string, m hubdata.MethodCall) *Calling {
	c := &Calling{t: t, Done: make(chan struct{})}
	go func() {
		defer close(c.Done)
		c.Answer, c.Err = h.CallMethod(t.Context(), id, m)
	}()
	return c
}

// CodeOf returns the service's code of an error.
func CodeOf(t testing.TB, err error) int {
	t.Helper()
	var e *hubdata.ServiceError
	require.ErrorAs(t, err, &e)
	return e.Code
}

// Fates returns the fates of all answers to methods.
func Fates(h *testbroker.Hub) []string {
	all := []string{}
	for _, a := range h.MethodAnswers("") {
		all = append(all, a.Fate.String())
	}
	return all
}

// Recorder records events.
type Recorder struct {
	mu  sync.Mutex
	all []event.Event
}

// Event records an event. It is for Options.OnEvent.
func (r *Recorder) Event(e event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

// Text returns the events as texts.
func (r *Recorder) Text() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.all {
		all = append(all, e.String())
	}
	return all
}

// RealTCP connects to a listener of the hub.
func RealTCP(t testing.TB, addr net.Addr) *Wire {
	conn, err := net.Dial("tcp", addr.String())
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(WaitLimit)))
	return NewWire(t, conn)
}

// RealTLS connects, does the handshake and sends a CONNECT, which must be accepted.
func RealTLS(t testing.TB, h *testbroker.Hub, addr net.Addr, d hubdata.Device) *Wire {
	conn, err := tls.Dial("tcp", addr.String(), h.ClientTLS())
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(WaitLimit)))
	w := NewWire(t, conn)
	require.Equal(t, []byte{0, 0}, w.Connect(ConnectOf(d)))
	return w
}

// Certified returns a CONNECT without a password.
func Certified(d hubdata.Device) Connect {
	c := Connect{Name: "MQTT", Level: 4, Flags: 2, KeepAlive: 60, ClientID: d.ID, User: d.HostName + "/" + d.ID +
		"/?api-version=2021-04-12"}
	if d.ModuleID != "" {
		c.ClientID += "/" + d.ModuleID
		c.User = d.HostName + "/" + c.ClientID + "/?api-version=2021-04-12"
	}
	return c
}

// TwoWays returns connections of every kind to a hub.
func TwoWays() map[string]func(t *testing.T) (*testbroker.Hub, hubdata.Device, net.Conn) {
	type hub struct {
		*testbroker.Hub
		addr net.Addr
	}
	open := func(listen func(*testbroker.Hub) (net.Addr, error), dial func(h hub) (net.Conn, error)) func(t *testing.T) (
		*testbroker.Hub, hubdata.Device, net.Conn) {
		return func(t *testing.T) (*testbroker.Hub, hubdata.Device, net.Conn) {
			h, d := NewHub(t, nil)
			var addr net.Addr
			if listen != nil {
				var err error
				addr, err = listen(h)
				require.NoError(t, err)
			}
			conn, err := dial(hub{h, addr})
			require.NoError(t, err)
			return h, d, conn
		}
	}
	const any = "127.0.0.1:0"
	return map[string]func(t *testing.T) (*testbroker.Hub, hubdata.Device, net.Conn){
		"memory": open(nil, func(h hub) (net.Conn, error) {
			return h.Dial(testbroker.PortMQTT)(context.Background(), "tcp", "hub")
		}),
		"TCP": open(func(h *testbroker.Hub) (net.Addr, error) {
			return h.Listen(testbroker.PortMQTT, any)
		}, func(h hub) (net.Conn, error) {
			return net.Dial("tcp", h.addr.String())
		}),
		"TLS": open(func(h *testbroker.Hub) (net.Addr, error) {
			return h.Listen(testbroker.PortMQTTS, any)
		}, func(h hub) (net.Conn, error) {
			return tls.Dial("tcp", h.addr.String(), h.ClientTLS())
		}),
		"WebSocket in memory": open(nil, func(h hub) (net.Conn, error) {
			ws, _, err := WebDialer(h.Hub, "mqtt").Dial("ws://hub/$iothub/websocket", nil)
			return &WebConn{Conn: ws}, err
		}),
		"WebSocket": open(func(h *testbroker.Hub) (net.Addr, error) {
			return h.Listen(testbroker.PortHTTPS, any)
		}, func(h hub) (net.Conn, error) {
			dialer := websocket.Dialer{Subprotocols: []string{"mqtt"}, TLSClientConfig: h.ClientTLS()}
			ws, _, err := dialer.Dial("wss://"+h.addr.String()+"/$iothub/websocket", nil)
			return &WebConn{Conn: ws, Frame: 40}, err
		}),
	}
}

// DialWeb connects over WebSocket for MQTT.
func DialWeb(t testing.TB, h *testbroker.Hub) *WebConn {
	conn, _, err := WebDialer(h, "mqtt").DialContext(t.Context(), "ws://"+h.HostName()+"/$iothub/websocket", nil)
	require.NoError(t, err)
	return &WebConn{Conn: conn}
}

// PullC2D requests a C2D message and returns it with its lock token.
func PullC2D(p *Poster) (Reply, string) {
	r := p.Do("GET", Inbound+Version, "")
	require.Equal(p.T, 200, r.StatusCode, r.Text)
	tag := r.Header.Get("ETag")
	require.Regexp(p.T, `^"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"$`, tag)
	return r, strings.Trim(tag, `"`)
}

// Bodies returns the bodies in the hub's log.
func Bodies(h *testbroker.Hub) (all []string) {
	for _, m := range h.Messages() {
		all = append(all, string(m.Body))
	}
	return all
}

// States returns the states and delivery counts of all C2D messages.
func States(h *testbroker.Hub) (all []string) {
	for _, r := range h.C2DLog("") {
		all = append(all, fmt.Sprint(r.State, " ", r.Deliveries))
	}
	return all
}

// Since returns the texts of the events from the n-th on, and the number of all.
func (r *Recorder) Since(n int) ([]string, int) {
	all := r.Text()
	return all[n:], len(all)
}

// All returns the events.
func (r *Recorder) All() []event.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// FaultTopic returns the topic of a message that requests a fault.
func FaultTopic(kind, reason, delay, duration string) string {
	return fmt.Sprintf(
		"%sAzIoTHub_FaultOperationType=%s&AzIoTHub_FaultOperationCloseReason=%s"+
			"&AzIoTHub_FaultOperationDelayInSecs=%s&AzIoTHub_FaultOperationDurationInSecs=%s",
		Events, kind, reason, delay, duration)
}
