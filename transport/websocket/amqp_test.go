package websocket_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/transporttest"
	"github.com/hubline-iot/hubline/transport/websocket"
)

func TestConformance(t *testing.T) {
	for name, opt := range map[string]func(h *hubfixture.Broker) *amqp.Options{
		"WebSocket without TLS": func(h *hubfixture.Broker) *amqp.Options {
			return &amqp.Options{Network: netopt.Options{Tunnel: websocket.AMQP(nil), Plaintext: true,
				Dial: h.Dial(testbroker.PortHTTP)}}
		},
		"WebSocket": func(h *hubfixture.Broker) *amqp.Options {
			return &amqp.Options{Network: netopt.Options{Tunnel: websocket.AMQP(nil), Dial: h.Dial(testbroker.PortHTTPS),
				TLS: h.ClientTLS()}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.New(t)
				p := h.Pair(t, amqp.New(opt(h)))
				p.Features |= hubfixture.Calls
				p.MarksResent = false
				p.HubMarks = append(p.HubMarks, "hubline/testbroker/")
				return p
			})
		})
	}
}

// net/http adds HTTP/2 to a tls.Config that it used. A server with HTTP/2 must not take the request
// for HTTP/2 then.
func TestASharedTLSConfigOverAMQP(t *testing.T) {
	h := hubfixture.New(t)
	shared := h.ClientTLS()
	shared.NextProtos = []string{"h2", "http/1.1"}
	c, err := device.New(h.CredsWith(t, ""),
		amqp.New(&amqp.Options{Network: netopt.Options{Tunnel: websocket.AMQP(nil), Dial: h.Dial(testbroker.PortHTTPS),
			TLS: shared}}), &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
	require.NoError(t, err)
	require.NoError(t, c.Open(t.Context()))
	require.NoError(t, c.Close())
}

// Real sockets, real time: one port for TLS, one for WebSocket, with messages in both directions
// and a connection that is cut.
func TestOverRealPorts(t *testing.T) {
	h := hubfixture.New(t)
	secure, err := h.Listen(testbroker.PortAMQPS, "127.0.0.1:0")
	require.NoError(t, err)
	web, err := h.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	for name, o := range map[string]amqp.Options{
		"TLS":       {Network: netopt.Options{Addr: secure.String(), TLS: h.ClientTLS()}},
		"WebSocket": {Network: netopt.Options{Addr: web.String(), TLS: h.ClientTLS(), Tunnel: websocket.AMQP(nil)}},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan string, 10)
			c, err := device.New(h.CredsWith(t, ""), amqp.New(&o), nil)
			require.NoError(t, err)
			c.HandleMessages(func(_ context.Context, m *transport.Message) error {
				got <- string(m.Body)
				return nil
			})
			defer c.Close()
			require.NoError(t, c.Open(t.Context()))
			before := h.Len()
			large := make([]byte, 200<<10)
			for range 5 {
				require.NoError(t, c.Send(t.Context(), &transport.Message{Body: large}))
			}
			h.Drop("")
			require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("after")}))
			require.GreaterOrEqual(t, h.Len(), before+6)
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte("down")}))
			select {
			case body := <-got:
				require.Equal(t, "down", body)
			case <-time.After(30 * time.Second):
				t.Fatal("no command")
			}
			require.NoError(t, c.Close())
		})
	}
}

func TestRefusals(t *testing.T) {
	h := hubfixture.New(t)
	dial := func(o *amqp.Options) error {
		_, err := amqp.New(o).Dial(t.Context(), &transport.Config{Creds: h.CredsWith(t, "")})
		require.Error(t, err)
		require.Equal(t, "amqp", transport.Find(err).Proto)
		return err
	}
	err := dial(&amqp.Options{Network: netopt.Options{Tunnel: websocket.AMQP(&websocket.Options{Path: "/elsewhere"}),
		Plaintext: true,
		Dial:      h.Dial(testbroker.PortHTTP)}})
	require.Equal(t, transport.NotFound, transport.KindOf(err))
	said, ok := errors.AsType[*transport.StatusError](err)
	require.True(t, ok)
	require.Equal(t, 404, said.Status)
	err = dial(&amqp.Options{Network: netopt.Options{Tunnel: websocket.AMQPStandard(nil), Plaintext: true,
		Dial: h.Dial(testbroker.PortHTTP)}})
	require.ErrorIs(t, err, transport.Protocol, "%v", err) // a hub accepts only the other name
	err = dial(&amqp.Options{Network: netopt.Options{Tunnel: websocket.AMQP(&websocket.Options{Path: "x"}),
		Plaintext: true,
		Dial:      h.Dial(testbroker.PortHTTP)}})
	require.ErrorIs(t, err, transport.Invalid)
	err = dial(&amqp.Options{Network: netopt.Options{Tunnel: websocket.AMQP(nil), Plaintext: true,
		Dial: h.Dial(testbroker.PortAMQP)}})
	require.ErrorContains(t, err, "WebSocket")
}
