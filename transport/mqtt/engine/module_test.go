package engine_test

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	id      = "dev-1/mod-1"
	gateway = "gateway.local"
)

// Modules: their inputs and outputs, their twin and their methods, at a hub and behind a gateway's
// name.
func TestModules(t *testing.T) {
	for name, host := range map[string]string{"at the hub": "", "through a gateway": gateway} {
		for what, f := range map[string]func(*testing.T, *module){
			"inputs have handlers and outputs names":  messages,
			"an input without a handler holds nobody": unhandled,
			"the twin is the module's own":            twin,
			"methods are the module's own":            methods,
			"all of it comes back after a loss":       comesBack,
			"a forwarded message stays what it is":    forwarded,
		} {
			t.Run(what+", "+name, func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) { f(t, open(t, host)) })
			})
		}
	}
	t.Run("an output is routed to an input, past the gateway's limit", func(t *testing.T) {
		testkit.Bubble(t, func(t *testing.T) { routed(t, open(t, gateway)) })
	})
}

// module is a client of a module, and its hub.
type module struct {
	*device.Client
	hub *hubfixture.Broker
	ctx context.Context

	mu  sync.Mutex
	got []string
}

// open makes a module that is not connected. With a gateway, connections go to its name, and its
// certificate is the only one.
func open(t *testing.T, gateway string) *module {
	o := &testbroker.Options{}
	if gateway != "" {
		o.Gateway = &testbroker.GatewayOptions{Name: gateway, Routes: []string{"FROM /messages/* INTO $upstream",
			`FROM /messages/modules/mod-1/outputs/x INTO BrokeredEndpoint("/modules/mod-2/inputs/y")`}}
	}
	m := &module{hub: hubfixture.NewWith(t, o)}
	m.hub.BecomeModule(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	m.Client, m.ctx = newClient(t, m.hub, m.hub.CredsWith(t, ""), gateway), ctx
	return m
}

// newClient returns a client that dials the gateway, or without one the hub, and nothing else.
func newClient(t *testing.T, hub *hubfixture.Broker, creds *transport.Credentials,
	gateway string) *device.Client {
	creds.GatewayHost = gateway
	host := creds.Host
	if gateway != "" {
		host = gateway
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		require.Equal(t, host+":8883", addr)
		return hub.Dial(testbroker.PortMQTTS)(ctx, network, addr)
	}
	n := netopt.Options{Dial: dial, TLS: &tls.Config{RootCAs: hub.RootCAs()}}
	c, err := device.New(creds, mqtt.New(&mqtt.Options{Network: n}), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func (m *module) add(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got = append(m.got, text)
}

// list returns what was added so far, and begins anew. A change of desired properties that comes
// while the twin is read waits for that.
func (m *module) list() []string {
	time.Sleep(time.Minute)
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	got := m.got
	m.got = nil
	return got
}

// handler returns a handler that adds a line for each message.
func (m *module) handler(name string) device.MessageHandler {
	return func(_ context.Context, in *transport.Message) error {
		line := name + ": " + in.Input + " " + string(in.Body)
		if in.System != nil {
			line += " from " + in.System.ConnectionDeviceID + "/" + in.System.ConnectionModuleID
		}
		m.add(line)
		return nil
	}
}

// input sends the module a message, and waits until it was settled.
func (m *module) input(t *testing.T, name, body string) {
	n := m.hub.CountInputs(id, hubdata.C2DCompleted)
	require.NoError(t, m.hub.SendInput(id, name, hubdata.C2D{Body: []byte(body), ConnectionDeviceID: "dev-1",
		ConnectionModuleID: "sender"}))
	require.NoError(t, m.hub.WaitInputs(m.ctx, id, hubdata.C2DCompleted, n+1))
}

func messages(t *testing.T, m *module) {
	m.HandleInput("a", m.handler("A"))
	m.HandleInput("b.1", m.handler("B"))
	m.HandleMessages(m.handler("default"))
	require.NoError(t, m.Open(m.ctx))
	m.input(t, "a", "1")
	m.input(t, "b.1", "2")
	m.input(t, "c", "3")
	const sender = " from dev-1/sender"
	require.Equal(t, []string{"A: a 1" + sender, "B: b.1 2" + sender, "default: c 3" + sender}, m.list())

	system := &transport.SystemProperties{UserID: "me", InterfaceID: transport.SecurityInterface}
	require.NoError(t, m.Send(m.ctx, &transport.Message{ID: "1", Output: "alarms", System: system, Body: []byte("up")}))
	require.NoError(t, m.Send(m.ctx, &transport.Message{ID: "2"}))
	require.NoError(t, m.hub.WaitMessages(m.ctx, 2)) // a gateway acknowledges earlier
	log := m.hub.Messages()
	require.Equal(t, []string{"dev-1", "mod-1", "alarms", "me", transport.SecurityInterface, "up"},
		[]string{log[0].DeviceID, log[0].ModuleID, log[0].Output, log[0].UserID, log[0].InterfaceID, string(log[0].Body)})
	require.Empty(t, log[1].Output)
}

// A Send that gives up may leave its message in the queue. The message is sent again with the body
// that it had, also when the handler has got another message meanwhile.
func forwarded(t *testing.T, m *module) {
	first := true
	m.HandleInput("in", func(ctx context.Context, in *transport.Message) error {
		if !first {
			return nil
		}
		first = false
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		err := m.Send(short, &transport.Message{ID: "1", Output: "o", Body: in.Body})
		require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
		return nil
	})
	require.NoError(t, m.Open(m.ctx))
	m.hub.Inject(fault.Fault{Kind: fault.SwallowPuback, Times: 1})
	m.input(t, "in", "first")
	m.input(t, "in", "OTHER")
	require.NoError(t, m.Flush(m.ctx))
	require.NoError(t, m.hub.WaitMessages(m.ctx, 2))
	for _, sent := range m.hub.Messages() {
		require.Equal(t, []string{"1", "first"}, []string{sent.MessageID, string(sent.Body)})
	}
}

// The hub counts what is not settled, as a gateway does: a message that is kept back would stay.
func unhandled(t *testing.T, m *module) {
	m.HandleInput("in", m.handler("in"))
	require.NoError(t, m.Open(m.ctx))
	const n = 40
	for range n {
		m.input(t, "unknown", "x")
	}
	m.input(t, "in", "last")
	require.Equal(t, []string{"in: in last from dev-1/sender"}, m.list())
	require.Zero(t, m.hub.CountInputs(id, hubdata.C2DEnqueued)+m.hub.CountInputs(id, hubdata.C2DInvisible))
	require.EqualValues(t, n, m.Stats().InputsUnhandled)
}

func twin(t *testing.T, m *module) {
	for name, patch := range map[string]string{"dev-1": `{"of":"the device"}`, id: `{"of":"the module"}`} {
		_, err := m.hub.Hub.PatchDesired(name, patch)
		require.NoError(t, err)
	}
	m.HandleDesired(func(_ context.Context, d device.Desired) { m.add(string(d.JSON)) })
	require.NoError(t, m.Open(m.ctx))
	require.Equal(t, []string{`{"$version":2,"of":"the module"}`}, m.list())
	_, err := m.hub.Hub.PatchDesired("dev-1", `{"of":"the device again"}`)
	require.NoError(t, err)
	_, err = m.hub.Hub.PatchDesired(id, `{"n":3}`)
	require.NoError(t, err)
	require.Equal(t, []string{`{"$version":3,"n":3}`}, m.list())

	_, err = m.PatchReported(m.ctx, []byte(`{"fw":"1"}`))
	require.NoError(t, err)
	require.JSONEq(t, `{"fw":"1"}`, m.hub.Reported())
	device, err := m.hub.Twin("dev-1")
	require.NoError(t, err)
	require.JSONEq(t, `{}`, string(device.Reported))
	both, err := m.GetTwin(m.ctx)
	require.NoError(t, err)
	require.JSONEq(t, `{"of":"the module","n":3,"$version":3}`, string(both.Desired))
}

func methods(t *testing.T, m *module) {
	require.NoError(t, m.HandleMethod("restart", func(_ context.Context, c *device.MethodCall) (int, []byte) {
		m.add(string(c.Body))
		return 202, []byte(`"soon"`)
	}))
	require.NoError(t, m.Open(m.ctx))
	r, err := m.hub.CallMethod(m.ctx, id, hubdata.MethodCall{Name: "restart", Payload: []byte(`{"in":5}`)})
	require.NoError(t, err)
	require.Equal(t, `202 "soon"`, strconv.Itoa(r.Status)+" "+string(r.Payload))
	require.Equal(t, []string{`{"in":5}`}, m.list())
	_, err = m.hub.CallMethod(m.ctx, "dev-1", hubdata.MethodCall{Name: "restart"})
	require.Error(t, err, "the device is not connected")
}

func comesBack(t *testing.T, m *module) {
	m.HandleInput("in", m.handler("in"))
	m.HandleDesired(func(_ context.Context, d device.Desired) { m.add(string(d.JSON)) })
	require.NoError(t, m.HandleMethod("ping", func(context.Context, *device.MethodCall) (int, []byte) { return 200, nil }))
	require.NoError(t, m.Open(m.ctx))
	require.Equal(t, []string{`{"$version":1}`}, m.list())
	for i := range 3 {
		m.hub.Cut()
		require.NoError(t, m.hub.SendInput(id, "in", hubdata.C2D{Body: []byte("while away")})) // it waits
		require.NoError(t, m.Send(m.ctx, &transport.Message{Output: "o", Body: []byte(strconv.Itoa(i))}))
		require.NoError(t, m.hub.WaitInputs(m.ctx, id, hubdata.C2DCompleted, i+1))
		_, err := m.hub.Hub.PatchDesired(id, `{"i":`+strconv.Itoa(i)+`}`)
		require.NoError(t, err)
		r, err := m.hub.CallMethod(m.ctx, id, hubdata.MethodCall{Name: "ping"})
		require.NoError(t, err)
		require.Equal(t, 200, r.Status)
		require.Subset(t, m.list(), []string{"in: in while away",
			`{"$version":` + strconv.Itoa(i+2) + `,"i":` + strconv.Itoa(i) + `}`})
		require.Equal(t, "o", m.hub.Messages()[i].Output)
	}
}

// The gateway sends 16 messages before the first is acknowledged, and most are for inputs without a
// handler.
func routed(t *testing.T, m *module) {
	second, err := m.hub.AddModule("dev-1", "mod-2")
	require.NoError(t, err)
	sign, err := transport.SharedKey(second.PrimaryKey)
	require.NoError(t, err)
	receiver := newClient(t, m.hub, &transport.Credentials{Host: second.HostName, DeviceID: "dev-1", ModuleID: "mod-2",
		Sign: sign}, gateway)
	const n, ignored = 200, 5 // n messages by the route, and for each some to another input
	receiver.HandleInput("y", m.handler("y"))
	require.NoError(t, receiver.Open(m.ctx))
	require.NoError(t, m.Open(m.ctx))
	var want []string
	for i := range n {
		body := strconv.Itoa(i)
		require.NoError(t, m.Enqueue(m.ctx, &transport.Message{Output: "x", Body: []byte(body)}, nil))
		want = append(want, "y: y "+body+" from dev-1/mod-1")
		for range ignored {
			for m.hub.SendInput("dev-1/mod-2", "other", hubdata.C2D{}) != nil { // the queue is full
				time.Sleep(time.Millisecond)
			}
		}
	}
	require.NoError(t, m.Flush(m.ctx))
	require.NoError(t, m.hub.WaitInputs(m.ctx, "dev-1/mod-2", hubdata.C2DCompleted, n*(1+ignored)))
	require.Equal(t, want, m.list())
	require.EqualValues(t, n*ignored, receiver.Stats().InputsUnhandled)
	require.Len(t, m.hub.Messages(), n, "the hub has them, too")
}
