package mqtt

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// receiving dials hub and runs a session that is subscribed to messages.
func receiving(t *testing.T, o *Options, creds *transport.Credentials) (*running, *sink) {
	t.Helper()
	k := new(sink)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := New(o).Dial(ctx, &transport.Config{Creds: creds, Window: 16, Queue: 16, Sink: k})
	require.NoError(t, err)
	r := run(t, s, k, ctx, cancel)
	r.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.FeatureMessages})
	synctest.Wait()
	require.Len(t, k.replies, 1)
	require.NoError(t, k.replies[0].Err)
	return r, k
}

func newBroker(t testing.TB) *testbroker.Hub {
	h, err := testbroker.New(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	return h
}

func TestModulesThroughAGateway(t *testing.T) {
	for _, module := range []string{"", "mod-1"} {
		t.Run("module "+module, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				h := newBroker(t)
				dev, err := h.AddDevice("dev-1")
				require.NoError(t, err)
				name := "dev-1"
				if module != "" {
					dev, err = h.AddModule("dev-1", module)
					require.NoError(t, err)
					name += "/" + module
				}
				creds := credsOf(t, dev, dev.PrimaryKey)
				creds.GatewayHost = "gateway.local"
				// the certificate names the gateway; user name and token name the hub
				require.NoError(t, h.PresentName("gateway.local"))
				var dialed []string
				o := &Options{Network: netopt.Options{TLS: &tls.Config{RootCAs: h.RootCAs()}, Dial: func(ctx context.Context,
					network,
					addr string) (net.Conn, error) {
					dialed = append(dialed, addr)
					return h.Dial(testbroker.PortMQTTS)(ctx, network, addr)
				}}}
				r, k := receiving(t, o, creds)
				require.Equal(t, []string{"gateway.local:8883"}, dialed)
				r.send("up")
				if module != "" {
					require.NoError(t, h.SendInput(name, "in", hubdata.C2D{Body: []byte("down")}))
				} else {
					require.NoError(t, h.SendC2D(name, hubdata.C2D{Body: []byte("down")}))
				}
				synctest.Wait()
				require.Len(t, k.messages, 1)
				require.Equal(t, "down", string(k.messages[0].Body))
				m := h.Messages()[0]
				require.Equal(t, "dev-1", m.DeviceID)
				require.Equal(t, module, m.ModuleID)
				require.Equal(t, []uint16{0}, k.tags())
				r.cancel()
				require.Error(t, <-r.ran)

				require.NoError(t, h.PresentName(""))
				_, err = New(o).Dial(t.Context(), &transport.Config{Creds: creds, Sink: k})
				require.ErrorIs(t, err, transport.Untrusted, "the hub's own certificate is not the gateway's")
			})
		})
	}
}
