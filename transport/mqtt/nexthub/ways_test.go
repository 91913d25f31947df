package nexthub_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/netproxy"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// throughAProxy dials by way of an HTTP proxy, which connects to h on any port.
func throughAProxy(t *testing.T, h *testbroker.Hub) netproxy.DialFunc {
	at := memconn.NewNetwork("proxy.example.test:3128")
	t.Cleanup(func() { require.NoError(t, at.Close()) })
	go func() {
		for near, err := at.Accept(); err == nil; near, err = at.Accept() {
			in := bufio.NewReader(near)
			r, err := http.ReadRequest(in)
			if err != nil || r.Method != http.MethodConnect || r.Host != h.HostName()+":443" {
				near.Close()
				continue
			}
			far, err := h.Dial(testbroker.PortHTTPS)(t.Context(), "tcp", r.Host)
			if err != nil {
				near.Close()
				return
			}
			pass := func(to, from net.Conn, in io.Reader) {
				_, _ = io.Copy(to, in)
				_, _ = to.Close(), from.Close()
			}
			_, _ = io.WriteString(near, "HTTP/1.1 200 OK\r\n\r\n")
			go pass(far, near, in)
			go pass(near, far, far)
		}
	}()
	dial, err := netproxy.New("http://proxy.example.test:3128", &netproxy.Options{Dial: at.DialContext})
	require.NoError(t, err)
	return dial
}

// A device does everything on each way to the hub, with its certificate: it gets the desired
// properties that were there before it, then each change alone.
func TestEachWayToTheHub(t *testing.T) {
	type dialer = func(*testing.T, *testbroker.Hub) netproxy.DialFunc
	direct := func(p testbroker.Port) dialer {
		return func(_ *testing.T, h *testbroker.Hub) netproxy.DialFunc { return h.Dial(p) }
	}
	for name, way := range map[string]struct {
		dial   dialer
		tunnel netopt.Tunnel
	}{
		"TLS":                       {direct(testbroker.PortMQTTS), nil},
		"WebSocket":                 {direct(testbroker.PortHTTPS), websocket.MQTT(nil)},
		"WebSocket through a proxy": {throughAProxy, websocket.MQTT(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
				cert := testbroker.NewClientCert("dev-2", time.Time{}, time.Time{})
				_, err := h.AddDeviceX509("dev-2", testbroker.Thumbprint(cert.Leaf))
				require.NoError(t, err)
				_, err = h.PatchDesired("dev-2", `{"seeded":7}`)
				require.NoError(t, err)
				c, err := device.New(&transport.Credentials{Host: h.HostName(), DeviceID: "dev-2"},
					mqtt.New(&mqtt.Options{Dialect: &nexthub.Hub{}, Network: netopt.Options{Dial: way.dial(t, h),
						Tunnel: way.tunnel, TLS: h.ClientTLS(),
						Certificate: func(context.Context) (*tls.Certificate, error) { return &cert, nil }}}), nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, c.Close()) }()
				desired := make(chan string, 10)
				require.NoError(t, c.HandleDesired(func(_ context.Context, d device.Desired) { desired <- string(d.JSON) }))
				require.NoError(t, c.HandleMethod("m", func(context.Context, *device.MethodCall) (int, []byte) {
					return 200, nil
				}))
				open(t, c)
				require.JSONEq(t, `{"seeded":7,"$version":2}`, <-desired)
				synctest.Wait() // a change before the client has settled may be read with the whole
				_, err = h.PatchDesired("dev-2", `{"fan":43}`)
				require.NoError(t, err)
				require.JSONEq(t, `{"fan":43,"$version":3}`, <-desired)
				synctest.Wait()
				require.Empty(t, desired)
				version, err := c.PatchReported(t.Context(), []byte(`{"a":1}`))
				require.NoError(t, err)
				require.EqualValues(t, 2, version)
				twin, err := c.GetTwin(t.Context())
				require.NoError(t, err)
				require.JSONEq(t, `{"seeded":7,"fan":43,"$version":3}`, string(twin.Desired))
				require.JSONEq(t, `{"a":1,"$version":2}`, string(twin.Reported))
				require.NoError(t, c.Send(t.Context(), &transport.Message{Body: make([]byte, 200_000)}))
				r, err := h.CallMethod(t.Context(), "dev-2", hubdata.MethodCall{Name: "m"})
				require.NoError(t, err)
				require.Equal(t, 200, r.Status)
				require.EqualValues(t, 1, c.Stats().Connections)
			})
		})
	}
}

// countingWrites counts the writes on a connection.
type countingWrites struct {
	net.Conn
	n *atomic.Int32
}

func (c countingWrites) Write(p []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(p)
}

// A step of the handshake that lasts longer than a read time-out goes on, with a ping for each.
func TestASlowBirthOverWebSocket(t *testing.T) {
	inBubble(t, testbroker.MQTTv5Options{}, func(t *testing.T, h *testbroker.Hub) {
		h.Inject(fault.Fault{Kind: fault.SlowDispatch, Message: "birth-ack", Delay: 6 * time.Second})
		var writes atomic.Int32
		o := options(h, &nexthub.Hub{})
		o.Network.Tunnel = websocket.MQTT(nil)
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := h.Dial(testbroker.PortHTTP)(ctx, network, addr)
			return countingWrites{c, &writes}, err
		}
		c, err := device.New(creds(), mqtt.New(o), &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		open(t, c)
		require.EqualValues(t, 5, writes.Load(), "upgrade, CONNECT, SUBSCRIBE, birth, and one PINGREQ")
	})
}
