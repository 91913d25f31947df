package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
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
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// module adds a module, with its device if that is new, and returns the module's credentials.
func (h *hub) module(t testing.TB, device, id string) *transport.Credentials {
	t.Helper()
	if _, err := h.Twin(device); err != nil {
		h.device(t, device)
	}
	d, err := h.AddModule(device, id)
	require.NoError(t, err)
	sign, err := transport.SharedKey(d.PrimaryKey)
	require.NoError(t, err)
	return &transport.Credentials{Host: d.HostName, DeviceID: device, ModuleID: id, Sign: sign}
}

// mail records the messages that a client handles.
type mail struct {
	mu  sync.Mutex
	got []transport.Message
}

// take returns a handler that records each message, and answers with err.
func (m *mail) take(err error) device.MessageHandler {
	return func(_ context.Context, in *transport.Message) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		own := *in
		own.Body = slices.Clone(in.Body)
		m.got = append(m.got, own)
		return err
	}
}

// all returns the messages as "input: body".
func (m *mail) all() (texts []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.got {
		texts = append(texts, m.got[i].Input+": "+string(m.got[i].Body))
	}
	return texts
}

// transports are the two ways to connect.
func transports(o *amqp.Options) map[string]transport.Transport {
	return map[string]transport.Transport{"alone": amqp.New(o), "shared": amqp.NewMux(o)}
}

// openModule opens a client, which is closed by t.Cleanup.
func openModule(t testing.TB, creds *transport.Credentials, tr transport.Transport,
	set func(*device.Client)) *device.Client {
	t.Helper()
	c, err := device.New(creds, tr, nil)
	require.NoError(t, err)
	set(c)
	require.NoError(t, c.Open(t.Context()))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Each input has its handler, and a message is settled by what the handler returns.
func TestInputsOfAModule(t *testing.T) {
	for name := range transports(nil) {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				creds := h.module(t, "dev-1", "m")
				var hot, rest mail
				tries := 0
				c := openModule(t, creds, transports(h.options())[name], func(c *device.Client) {
					c.HandleInput("hot", hot.take(nil))
					c.HandleInput("bad", func(context.Context, *transport.Message) error { return device.ErrReject })
					c.HandleInput("late", func(context.Context, *transport.Message) error {
						if tries++; tries < 3 {
							return errors.New("not yet")
						}
						return nil
					})
					c.HandleMessages(rest.take(nil))
				})
				for i, input := range []string{"hot", "bad", "late", "other", "hot"} {
					require.NoError(t, h.SendInput("dev-1/m", input, hubdata.C2D{Body: fmt.Append(nil, i)}))
				}
				require.NoError(t, h.WaitInputs(t.Context(), "dev-1/m", hubdata.C2DCompleted, 4))
				require.NoError(t, h.WaitInputs(t.Context(), "dev-1/m", hubdata.C2DRejected, 1))
				require.Equal(t, []string{"hot: 0", "hot: 4"}, hot.all())
				require.Equal(t, []string{"other: 3"}, rest.all())
				require.Equal(t, 3, tries)

				c.HandleMessages(nil) // nobody is for the other inputs
				require.NoError(t, h.SendInput("dev-1/m", "other", hubdata.C2D{Body: []byte("lost")}))
				require.NoError(t, h.WaitInputs(t.Context(), "dev-1/m", hubdata.C2DRejected, 2))
				require.EqualValues(t, 1, c.Stats().InputsUnhandled)
			})
		})
	}
}

// An edge gateway stops after 16 messages that are not settled. They wait in the client while a
// handler is busy, and are settled one after the other: nothing stays behind.
func TestAGatewayStopsAfterSixteenMessages(t *testing.T) {
	edge(t, nil, func(t *testing.T, h *hub) {
		busy := make(chan struct{})
		var got mail
		take := got.take(nil)
		c := openModule(t, h.behind(t, "m"), amqp.New(h.throughGateway()), func(c *device.Client) {
			c.HandleInput("in", func(ctx context.Context, m *transport.Message) error {
				<-busy
				return take(ctx, m)
			})
		})
		const sent = 50
		for i := range sent {
			require.NoError(t, h.SendInput("dev-1/m", "in", hubdata.C2D{Body: fmt.Append(nil, i)}))
		}
		synctest.Wait()
		require.Equal(t, 16, h.CountInputs("dev-1/m", hubdata.C2DInvisible))
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("telemetry goes on")}))
		close(busy)
		require.NoError(t, h.WaitInputs(t.Context(), "dev-1/m", hubdata.C2DCompleted, sent))
		require.Len(t, got.all(), sent)
		require.Equal(t, fmt.Sprint("in: ", sent-1), got.all()[sent-1])
	})
}

// Messages of inputs that no handler is for do not stop a gateway either.
func TestUnhandledInputsDoNotStopAGateway(t *testing.T) {
	edge(t, nil, func(t *testing.T, h *hub) {
		var got mail
		c := openModule(t, h.behind(t, "m"), amqp.New(h.throughGateway()), func(c *device.Client) {
			c.HandleInput("in", got.take(nil))
		})
		for range 40 {
			require.NoError(t, h.SendInput("dev-1/m", "nobody", hubdata.C2D{}))
		}
		require.NoError(t, h.SendInput("dev-1/m", "in", hubdata.C2D{Body: []byte("x")}))
		require.NoError(t, h.WaitInputs(t.Context(), "dev-1/m", hubdata.C2DCompleted, 1))
		require.Equal(t, 40, h.CountInputs("dev-1/m", hubdata.C2DRejected))
		require.EqualValues(t, 40, c.Stats().InputsUnhandled)
	})
}

// A link to inputs that is lost is attached again, and its messages come again.
func TestTheLinkToInputsIsAttachedAgain(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		var got mail
		openModule(t, h.module(t, "dev-1", "m"), amqp.New(h.options()), func(c *device.Client) {
			c.HandleInput("in", got.take(nil))
		})
		for i, lose := range []func() int{
			func() int { return h.DetachLinks("dev-1/m", fault.LinkInput, hubdata.AMQPError{}) },
			func() int { return h.EndSessions("dev-1/m", hubdata.AMQPError{}) },
			func() int { return h.CloseAMQP("dev-1/m", hubdata.AMQPError{Condition: "amqp:connection:forced"}) },
		} {
			time.Sleep(time.Minute)
			require.Equal(t, 1, lose())
			require.NoError(t, h.SendInput("dev-1/m", "in", hubdata.C2D{Body: fmt.Append(nil, i)}))
			require.NoError(t, h.WaitInputs(t.Context(), "dev-1/m", hubdata.C2DCompleted, i+1))
		}
		require.Equal(t, []string{"in: 0", "in: 1", "in: 2"}, got.all())
	})
}

// gatewayName is the host name of the gateway of edge.
const gatewayName = "gateway.local"

// edge runs f in a bubble with a hub behind an edge gateway, which has the device "dev-1".
func edge(t *testing.T, routes []string, f func(t *testing.T, h *hub)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		broker, err := testbroker.New(&testbroker.Options{Gateway: &testbroker.GatewayOptions{Name: gatewayName,
			DeviceID: "dev-1", Routes: routes}})
		require.NoError(t, err)
		defer broker.Close()
		h := &hub{Broker: &hubfixture.Broker{Hub: broker}}
		h.device(t, "dev-1")
		f(t, h)
	})
}

// behind adds a module of "dev-1", which connects to the gateway.
func (h *hub) behind(t testing.TB, id string) *transport.Credentials {
	t.Helper()
	creds := *h.module(t, "dev-1", id)
	creds.GatewayHost = gatewayName
	return &creds
}

// throughGateway are options for TLS connections that must go to the gateway.
func (h *hub) throughGateway() *amqp.Options {
	trust := h.ClientTLS()
	trust.ServerName = ""
	return &amqp.Options{Network: netopt.Options{TLS: trust, Dial: func(ctx context.Context, network,
		addr string) (net.Conn, error) {
		if addr != gatewayName+":5671" {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no such host: " + addr)}
		}
		h.dials.Add(1)
		return h.Dial(testbroker.PortAMQPS)(ctx, network, addr)
	}}}
}

// One module's output is routed to another one's input, over one connection. The gateway says who
// sent the message, and restarts in between.
func TestMessagesFromModuleToModule(t *testing.T) {
	routes := []string{
		`FROM /messages/modules/sender/outputs/hot INTO BrokeredEndpoint("/modules/receiver/inputs/alarm")`,
		"FROM /messages/* INTO $upstream",
	}
	for name := range transports(nil) {
		t.Run(name, func(t *testing.T) {
			edge(t, routes, func(t *testing.T, h *hub) {
				tr := transports(h.throughGateway())[name]
				var got mail
				openModule(t, h.behind(t, "receiver"), tr, func(c *device.Client) { c.HandleInput("alarm", got.take(nil)) })
				c := openModule(t, h.behind(t, "sender"), tr, func(*device.Client) {})
				for i := range 3 {
					require.NoError(t, c.Send(t.Context(), &transport.Message{Output: "hot", Body: fmt.Append(nil, i),
						System: &transport.SystemProperties{Schema: "s", UserID: "u"}}))
					require.NoError(t, h.WaitInputs(t.Context(), "dev-1/receiver", hubdata.C2DCompleted, i+1))
					require.NoError(t, h.StopGateway())
					time.Sleep(time.Minute)
					require.NoError(t, h.StartGateway())
				}
				require.Equal(t, []string{"alarm: 0", "alarm: 1", "alarm: 2"}, got.all())
				require.Equal(t, "sender", got.got[0].System.ConnectionModuleID)
				require.Equal(t, "dev-1", got.got[0].System.ConnectionDeviceID)
				require.Equal(t, []string{"s", "u"}, []string{got.got[0].System.Schema, got.got[0].System.UserID})
				time.Sleep(time.Minute)
				require.Len(t, h.Messages(), 3, "by the other route")
				require.Equal(t, "hot", h.Messages()[0].Output)
			})
		})
	}
}

// A module behind a gateway has inputs, outputs, a twin and methods. Its token is for the hub, and
// the certificate is the gateway's.
func TestAModuleThroughAGateway(t *testing.T) {
	for name := range transports(nil) {
		t.Run(name, func(t *testing.T) {
			edge(t, nil, func(t *testing.T, h *hub) {
				var in mail
				var versions []int64
				c := openModule(t, h.behind(t, "m"), transports(h.throughGateway())[name], func(c *device.Client) {
					c.HandleInput("in", in.take(nil))
					c.HandleDesired(func(_ context.Context, d device.Desired) { versions = append(versions, d.Version) })
					require.NoError(t, c.HandleMethod("double", func(_ context.Context, m *device.MethodCall) (int, []byte) {
						return 200, slices.Repeat(m.Body, 2)
					}))
				})
				require.NoError(t, c.Send(t.Context(), &transport.Message{Output: "out", Body: []byte("x")}))
				synctest.Wait() // the gateway acknowledges before the hub has it
				sent := h.Messages()[0]
				require.Equal(t, []string{"dev-1", "m", "out"}, []string{sent.DeviceID, sent.ModuleID, sent.Output})
				require.Empty(t, sent.Properties)

				require.NoError(t, h.SendInput("dev-1/m", "in", hubdata.C2D{Body: []byte("x")}))
				require.NoError(t, h.WaitInputs(t.Context(), "dev-1/m", hubdata.C2DCompleted, 1))
				require.Equal(t, []string{"in: x"}, in.all())

				_, err := c.PatchReported(t.Context(), []byte(`{"a":1}`))
				require.NoError(t, err)
				of, err := h.Twin("dev-1/m")
				require.NoError(t, err)
				require.JSONEq(t, `{"a":1}`, string(of.Reported))
				of, err = h.Twin("dev-1")
				require.NoError(t, err)
				require.JSONEq(t, `{}`, string(of.Reported), "the device has a twin of its own")
				_, err = h.Hub.PatchDesired("dev-1/m", `{"b":2}`)
				require.NoError(t, err)
				twin, err := c.GetTwin(t.Context())
				require.NoError(t, err)
				require.JSONEq(t, `{"b":2,"$version":2}`, string(twin.Desired))
				synctest.Wait()
				require.Equal(t, []int64{1, 2}, versions)

				r, err := h.CallMethod(t.Context(), "dev-1/m", hubdata.MethodCall{Name: "double", Payload: []byte("1")})
				require.NoError(t, err)
				require.Equal(t, hubdata.MethodResult{Status: 200, Payload: []byte("11")}, r)
				_, err = h.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: "double"})
				require.Error(t, err, "the device itself is not connected")
			})
		})
	}
}

// Devices and modules share a connection: each has its own inputs, twin and methods, and a refused
// one does not disturb the others.
func TestModulesAndDevicesShareAConnection(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		mux := amqp.NewMux(h.options())
		all := map[string]*transport.Credentials{"dev-1": h.CredsWith(t, ""), "dev-2": h.device(t, "dev-2")}
		for _, id := range []string{"dev-1/a", "dev-1/b", "dev-2/a"} {
			of, module, _ := strings.Cut(id, "/")
			all[id] = h.module(t, of, module)
		}
		boxes := map[string]*mail{}
		for id, creds := range all {
			box := new(mail)
			boxes[id] = box
			c := openModule(t, creds, mux, func(c *device.Client) {
				if c.HandleMessages(box.take(nil)); creds.ModuleID != "" {
					c.HandleInput("in", box.take(nil))
				}
				require.NoError(t, c.HandleMethod("who", func(context.Context, *device.MethodCall) (int, []byte) {
					return 200, fmt.Appendf(nil, "%q", id)
				}))
			})
			require.NoError(t, c.Send(t.Context(), &transport.Message{ID: id}))
			_, err := c.PatchReported(t.Context(), fmt.Appendf(nil, `{"id":%q}`, id))
			require.NoError(t, err)
		}
		wrong := *all["dev-1/a"]
		wrong.ModuleID = "b" // the key is that of another module
		_, err := mux.Dial(t.Context(), &transport.Config{Creds: &wrong, Sink: &sink{}})
		require.ErrorIs(t, err, transport.Unauthorized)

		for id := range all {
			if strings.Contains(id, "/") {
				require.NoError(t, h.SendInput(id, "in", hubdata.C2D{Body: []byte(id)}))
				require.NoError(t, h.WaitInputs(t.Context(), id, hubdata.C2DCompleted, 1))
				require.Equal(t, []string{"in: " + id}, boxes[id].all())
			} else {
				require.NoError(t, h.SendC2D(id, hubdata.C2D{Body: []byte(id)}))
				require.NoError(t, h.WaitC2D(t.Context(), id, hubdata.C2DCompleted, 1))
				require.Equal(t, []string{": " + id}, boxes[id].all())
			}
			r, err := h.CallMethod(t.Context(), id, hubdata.MethodCall{Name: "who"})
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("%q", id), string(r.Payload))
			twin, err := h.Twin(id)
			require.NoError(t, err)
			require.JSONEq(t, fmt.Sprintf(`{"id":%q}`, id), string(twin.Reported))
		}
		require.EqualValues(t, 1, h.dials.Load())
		for _, m := range h.Messages() {
			require.Equal(t, m.MessageID, strings.TrimSuffix(m.DeviceID+"/"+m.ModuleID, "/"))
		}
	})
}

// All properties of a message arrive, in a batch and alone, and come back by an input.
func TestSystemPropertiesBothWays(t *testing.T) {
	at := time.Date(2031, 2, 3, 4, 5, 6, 789e6, time.UTC)
	system := transport.SystemProperties{To: "to", UserID: "u", Schema: "s", InterfaceID: transport.SecurityInterface,
		ConnectionDeviceID: "d", ConnectionModuleID: "n", DiagnosticID: "g", DiagnosticContext: "x"}
	up := transport.Message{ID: "m", CorrelationID: "c", ContentType: "t", ContentEncoding: "e", Component: "p",
		Created: at, Expires: at, Output: "o", System: &system,
		Properties: []transport.Property{{Name: "traceparent", Value: "00-1"}}, Body: []byte("b")}
	for _, batch := range []int{0, 1} {
		bubble(t, func(t *testing.T, h *hub) {
			var in mail
			o := h.options()
			o.Batch = batch
			c := openModule(t, h.module(t, "dev-1", "m"), amqp.New(o), func(c *device.Client) {
				c.HandleInput("in", in.take(nil))
			})
			require.NoError(t, c.Send(t.Context(), &up))
			m := h.Messages()[0]
			require.Equal(t, []string{"m", "c", "t", "e", "p", "o"},
				[]string{m.MessageID, m.CorrelationID, m.ContentType, m.ContentEncoding, m.Component, m.Output})
			require.Equal(t, system, transport.SystemProperties{To: m.To, UserID: m.UserID, Schema: m.Schema,
				InterfaceID: m.InterfaceID, ConnectionDeviceID: m.ConnectionDeviceID,
				ConnectionModuleID: m.ConnectionModuleID, DiagnosticID: m.DiagnosticID,
				DiagnosticContext: m.DiagnosticContext})
			require.Equal(t, []hubdata.Property{{Name: "traceparent", Value: "00-1"}}, m.Properties)
			for _, text := range []string{m.CreationTime, m.Expiry} {
				back, err := time.Parse(time.RFC3339Nano, text)
				require.NoError(t, err)
				require.True(t, at.Equal(back), text)
			}

			require.NoError(t, h.SendInput("dev-1/m", "in", hubdata.C2D{MessageID: "m", CorrelationID: "c", UserID: "u",
				ContentType: "t", ContentEncoding: "e", To: "to", Schema: "s", InterfaceID: transport.SecurityInterface,
				Component: "p", ConnectionDeviceID: "d", ConnectionModuleID: "n", DiagnosticID: "g", DiagnosticContext: "x",
				CreationTime: at, Expiry: at, Properties: m.Properties, Body: []byte("b")}))
			require.NoError(t, h.WaitInputs(t.Context(), "dev-1/m", hubdata.C2DCompleted, 1))
			got := in.got[0]
			got.Properties = slices.DeleteFunc(got.Properties, func(p transport.Property) bool {
				return p.Name == "iothub-enqueuedtime"
			})
			want := up
			want.Output, want.Input = "", "in"
			require.Equal(t, want, got)
		})
	}
}
