package amqpfront_test

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hubtest"
)

func TestTelemetryOverAMQP(t *testing.T) {
	hubtest.InBubble(t, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
		p := hubtest.LoginAMQP(t, h, d)
		require.Equal(t, 1, h.Connections("dev-1"))
		l := p.Telemetry(d)
		subject, text := "application/json", "utf-8"
		user := []byte("u")
		expiry := time.Date(2030, 1, 2, 3, 4, 5, 6000000, time.UTC)
		require.NoError(t, l.Send(t.Context(), &amqp.Message{
			Properties: &amqp.MessageProperties{
				MessageID: "m-1", CorrelationID: uint64(7), ContentType: &subject, ContentEncoding: &text, UserID: user,
				AbsoluteExpiryTime: &expiry,
			},
			Annotations:           amqp.Annotations{"dt-subject": "comp"},
			ApplicationProperties: map[string]any{"level": "high", "iothub-creation-time-utc": "2030-01-01T00:00:00Z"},
			Data:                  [][]byte{[]byte("one")},
		}, nil))
		require.NoError(t, l.Send(t.Context(), &amqp.Message{
			Properties: &amqp.MessageProperties{MessageID: amqp.UUID{0x12, 0x34, 15: 0xff}},
			Data:       [][]byte{[]byte("t"), []byte("wo")},
		}, &amqp.SendOptions{Settled: true}))
		synctest.Wait()
		all := h.Messages()
		require.Len(t, all, 2)
		first := all[0]
		require.Len(t, first.System, 8)
		require.Equal(t, hubdata.Message{
			DeviceID: "dev-1", MessageID: "m-1", CorrelationID: "7", ContentType: "application/json", ContentEncoding: "utf-8",
			Component: "comp", UserID: "u", CreationTime: "2030-01-01T00:00:00Z", Expiry: "2030-01-02T03:04:05.0060000Z",
			System:     first.System,
			Properties: []hubdata.Property{{Name: "level", Value: "high"}}, Body: []byte("one"), Protocol: hubdata.AMQP,
			Topic: "/devices/dev-1/messages/events", QoS: 1, Connection: 1, Received: time.Now(), Sequence: 1,
		}, first)
		require.Contains(t, first.System, hubdata.Property{Name: "$.sub", Value: "comp"})
		require.Equal(t, "two", string(all[1].Body))
		require.Equal(t, "12340000-0000-0000-0000-0000000000ff", all[1].MessageID)
		require.Zero(t, all[1].QoS)
	})
}

// everyWay returns every kind of connection for AMQP.
func everyWay(t *testing.T, h *testbroker.Hub) map[string]func() (net.Conn, error) {
	t.Helper()
	listen := func(p testbroker.Port) string {
		addr := hubtest.Listen(t, h, p)
		return addr.String()
	}
	ctx := t.Context()
	secure := func(raw net.Conn, err error) (net.Conn, error) {
		if err != nil {
			return nil, err
		}
		return tls.Client(raw, h.ClientTLS()), nil
	}
	web := func(dial func(context.Context, string, string) (net.Conn, error), scheme, addr string) (net.Conn, error) {
		d := hubtest.WebDialer(h, "amqpwsb10")
		d.NetDialContext, d.TLSClientConfig = dial, h.ClientTLS()
		ws, _, err := d.DialContext(ctx, scheme+"://"+addr+"/$iothub/websocket", nil)
		if err != nil {
			return nil, err
		}
		return &hubtest.WebConn{Conn: ws}, nil
	}
	return map[string]func() (net.Conn, error){
		"memory":               func() (net.Conn, error) { return h.Dial(testbroker.PortAMQP)(ctx, "tcp", "hub") },
		"memory TLS":           func() (net.Conn, error) { return secure(h.Dial(testbroker.PortAMQPS)(ctx, "tcp", "hub")) },
		"memory WebSocket":     func() (net.Conn, error) { return web(h.Dial(testbroker.PortHTTP), "ws", h.HostName()) },
		"memory WebSocket TLS": func() (net.Conn, error) { return web(h.Dial(testbroker.PortHTTPS), "wss", h.HostName()) },
		"TCP":                  func() (net.Conn, error) { return net.Dial("tcp", listen(testbroker.PortAMQP)) },
		"TLS":                  func() (net.Conn, error) { return secure(net.Dial("tcp", listen(testbroker.PortAMQPS))) },
		"WebSocket": func() (net.Conn, error) {
			return web((&net.Dialer{}).DialContext, "wss", listen(testbroker.PortHTTPS))
		},
	}
}

func TestAMQPOnEveryPort(t *testing.T) {
	h, d := hubtest.NewHub(t, nil)
	for name, dial := range everyWay(t, h) {
		t.Run(name, func(t *testing.T) {
			stream, err := dial()
			require.NoError(t, err)
			bothWays(t, h, d, stream)
		})
	}
}

// In-memory connections work in fake time: hours pass, and no goroutine remains.
func TestAMQPOnEveryPortInABubble(t *testing.T) {
	for _, name := range []string{"memory", "memory TLS", "memory WebSocket", "memory WebSocket TLS"} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, d hubdata.Device) {
			stream, err := everyWay(t, h)[name]()
			require.NoError(t, err)
			bothWays(t, h, d, stream)
		})
	}
}

// bothWays sends large messages in both directions, and lets an hour pass.
func bothWays(t *testing.T, h *testbroker.Hub, d hubdata.Device, stream net.Conn) {
	p := hubtest.NewPeer(t, h, stream, nil)
	require.Equal(t, 200, p.CBS().Put(hubtest.Token(d)))
	large := make([]byte, 200<<10)
	before := h.Len()
	l := p.Telemetry(d)
	for range 5 {
		require.NoError(t, l.Send(t.Context(), amqp.NewMessage(large), nil))
	}
	require.Equal(t, before+5, h.Len())
	if time.Now().Year() == 2000 { // in a bubble
		time.Sleep(time.Hour)
	}
	require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: make([]byte, hubdata.MaxC2D)}))
	m, err := p.C2dMessages(d, nil).Receive(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, m.GetData(), hubdata.MaxC2D)
	p.Conn.Close()
	require.NoError(t, h.Wait(t.Context(), func([]hubdata.Message) bool { return h.Connections("") == 0 }))
	h.PurgeC2D("")
}

func TestSASL(t *testing.T) {
	for name, c := range map[string]struct {
		sasl func(d, mod hubdata.Device, whole string) amqp.SASLType
		code string // the outcome code of a refusal
		cbs  bool   // the client must send a token first
	}{
		"none":      {func(_, _ hubdata.Device, _ string) amqp.SASLType { return nil }, "", true},
		"anonymous": {func(_, _ hubdata.Device, _ string) amqp.SASLType { return amqp.SASLTypeAnonymous() }, "", true},
		"plain": {func(d, _ hubdata.Device, _ string) amqp.SASLType {
			return amqp.SASLTypePlain("dev-1@sas.hub", hubtest.Token(d))
		}, "", false},
		"plain of a policy": {func(_, _ hubdata.Device, whole string) amqp.SASLType {
			return amqp.SASLTypePlain("service@sas.root.hub", whole)
		}, "", false},
		"plain of a module": {func(_, mod hubdata.Device, _ string) amqp.SASLType {
			return amqp.SASLTypePlain("dev-1/mod-1@sas.hub", hubtest.Token(mod))
		}, "", true},
		"plain, another hub": {func(d, _ hubdata.Device, _ string) amqp.SASLType {
			return amqp.SASLTypePlain("dev-1@sas.hub2", hubtest.Token(d))
		}, "0x1", false},
		"plain, another device": {func(d, _ hubdata.Device, _ string) amqp.SASLType {
			return amqp.SASLTypePlain("dev-2@sas.hub", hubtest.Token(d))
		}, "0x1", false},
		"plain, no token": {func(_, _ hubdata.Device, _ string) amqp.SASLType {
			return amqp.SASLTypePlain("dev-1@sas.hub", "secret")
		}, "0x1", false},
		"plain, name alone": {func(d, _ hubdata.Device, _ string) amqp.SASLType {
			return amqp.SASLTypePlain("dev-1", hubtest.Token(d))
		}, "0x1", false},
		"plain, another policy": {func(_, _ hubdata.Device, whole string) amqp.SASLType {
			return amqp.SASLTypePlain("owner@sas.root.hub", whole)
		}, "0x1", false},
		"external, no certificate": {func(_, _ hubdata.Device, _ string) amqp.SASLType {
			return amqp.SASLTypeExternal("")
		}, "0x1", false},
	} {
		hubtest.RunBubble(t, name, func(t *testing.T) {
			var refused []error
			h, d := hubtest.NewHub(t, &testbroker.Options{OnEvent: func(e event.Event) {
				if e.Kind == event.Refused {
					refused = append(refused, e.Err)
				}
			}})
			policy := hubtest.AddPolicy(t, h, "service")
			mod := hubtest.AddModule(t, h, "dev-1", "mod-1")
			whole := hubtest.Sign("hub.example.test", policy.PrimaryKey, time.Now().Add(time.Hour).Unix()) + "&skn=service"
			stream := hubtest.DialPort(t, h, testbroker.PortAMQP)
			conn, err := amqp.NewConn(t.Context(), stream, &amqp.ConnOptions{ContainerID: "c", HostName: h.HostName(),
				SASLType: c.sasl(d, mod, whole)})
			if c.code != "" {
				require.ErrorContains(t, err, "failed with code "+c.code)
				synctest.Wait()
				require.Len(t, refused, 1)
				require.NotContains(t, refused[0].Error(), d.PrimaryKey)
				require.Zero(t, h.Connections(""))
				return
			}
			require.NoError(t, err)
			defer conn.Close()
			s, err := conn.NewSession(t.Context(), nil)
			require.NoError(t, err)
			_, err = s.NewSender(t.Context(), "/devices/dev-1/messages/events", nil)
			if c.cbs {
				require.Equal(t, "amqp:unauthorized-access", hubtest.Condition(t, err))
				require.Zero(t, h.Connections("dev-1/"))
				return
			}
			require.NoError(t, err)
			require.Equal(t, 1, h.Connections("dev-1"))
		})
	}
}

// A client with a certificate needs neither SASL nor a token, but may use EXTERNAL.
func TestCertificatesOverAMQP(t *testing.T) {
	for name, sasl := range map[string]amqp.SASLType{"no SASL": nil, "external": amqp.SASLTypeExternal(""),
		"external by name": amqp.SASLTypeExternal("x-1")} {
		hubtest.RunInBubble(t, name, nil, func(t *testing.T, h *testbroker.Hub, _ hubdata.Device) {
			cert := testbroker.NewClientCert("x-1", time.Time{}, time.Time{})
			other := testbroker.NewClientCert("x-2", time.Time{}, time.Time{})
			_, err := h.AddDeviceX509("x-1", testbroker.Thumbprint(cert.Leaf))
			require.NoError(t, err)
			attach := func(cert tls.Certificate, device string) error {
				raw := hubtest.DialPort(t, h, testbroker.PortAMQPS)
				config := h.ClientTLS()
				config.Certificates = []tls.Certificate{cert}
				conn, err := amqp.NewConn(t.Context(), tls.Client(raw, config), &amqp.ConnOptions{ContainerID: "c",
					SASLType: sasl})
				if err != nil {
					raw.Close()
					return err
				}
				defer conn.Close()
				s, err := conn.NewSession(t.Context(), nil)
				require.NoError(t, err)
				_, err = s.NewSender(t.Context(), "/devices/"+device+"/messages/events", nil)
				return err
			}
			require.NoError(t, attach(cert, "x-1"))
			require.Error(t, attach(other, "x-1"))
			require.Error(t, attach(cert, "dev-1"), "it has keys")
		})
	}
}
