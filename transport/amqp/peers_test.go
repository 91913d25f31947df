package amqp_test

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A peer that does not speak AMQP fails the dial with Protocol.
func TestPeersThatDoNotSpeakAMQP(t *testing.T) {
	header := "AMQP\x00\x01\x00\x00"
	for name, c := range map[string]struct {
		says string
		kind transport.Kind
	}{
		"HTTP":                    {"HTTP/1.1 400 Bad Request\r\n\r\n", transport.Protocol},
		"AMQP 0.9.1":              {"AMQP\x00\x00\x09\x01", transport.Protocol},
		"SASL, and no mechanisms": {"AMQP\x03\x01\x00\x00", transport.Network},
		"a frame without end":     {header + "\x7f\xff\xff\xff\x02\x00\x00\x00", transport.Protocol},
		"nothing":                 {"", transport.Network},
		"half a header":           {"AMQ", transport.Network},
		"half a frame":            {header + "\x00\x00\x01\x00\x02\x00", transport.Network},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "d",
				Token: func(context.Context) (transport.Token, error) {
					return transport.Token{Text: transport.Hide("SharedAccessSignature sr=x&sig=secret")}, nil
				}}
			_, err := amqp.New(&amqp.Options{Network: between(func(far net.Conn) {
				_, _ = io.ReadFull(far, make([]byte, 8))
				_, _ = io.WriteString(far, c.says)
				_ = far.(*memconn.Conn).CloseWrite()
				_, _ = io.Copy(io.Discard, far)
			})}).Dial(t.Context(), &transport.Config{Creds: creds})
			require.ErrorIs(t, err, c.kind, "%v", err)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

// Failures of TLS and certificates, and garbage after the open.
func TestFaultsOfTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		_, err := tryStart(t, amqp.New(&amqp.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortAMQPS)}}),
			h.CredsWith(t,
				""))
		require.ErrorIs(t, err, transport.Untrusted)
		for kind, want := range map[fault.Kind]transport.Kind{
			fault.NotTLS: transport.Protocol, fault.CutHandshake: transport.Network,
			fault.OldTLS: transport.Unsupported, fault.ExpiredCertificate: transport.Untrusted,
		} {
			h.inject(fault.Fault{Kind: kind})
			_, err := tryStart(t, amqp.New(&amqp.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortAMQPS),
				TLS: h.ClientTLS()}}), h.CredsWith(t,
				""))
			require.ErrorIs(t, err, want, "%v: %v", kind, err)
		}
		r := h.dev1(t, h.options())
		r.requireSends("x")
		require.Equal(t, 1, h.SendRaw("dev-1", []byte{0, 0, 0, 1, 2, 3}))
		<-r.over
		require.True(t, errfilter.Retryable(r.err), "%v", r.err)
	})
}

// With a gateway, its host is dialed and verified, and the token is for the hub.
func TestAGateway(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		creds := *h.CredsWith(t, "")
		creds.GatewayHost = "gateway.local"
		require.NoError(t, h.PresentName("gateway.local"))
		var dialed string
		tlsConfig := h.ClientTLS()
		tlsConfig.ServerName = ""
		r, err := tryStart(t, amqp.New(&amqp.Options{Network: netopt.Options{TLS: tlsConfig, Dial: func(ctx context.Context,
			network,
			addr string) (net.Conn, error) {
			dialed = addr
			return h.Dial(testbroker.PortAMQPS)(ctx, network, addr)
		}}}), &creds)
		require.NoError(t, err)
		require.Equal(t, "gateway.local:5671", dialed)
		r.requireSends("x")
	})
}

// The handshake is bounded by its context only.
func TestAPeerThatNeverAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		for _, f := range []fault.Fault{
			{Kind: fault.SwallowConnack}, {Kind: fault.SlowConnack, Delay: time.Hour}, {Kind: fault.MuteHandshake},
			{Kind: fault.SwallowToken},
		} {
			in := h.inject(f)
			o := h.options()
			if f.Kind == fault.MuteHandshake {
				o = &amqp.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortAMQPS), TLS: h.ClientTLS()}}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			began := time.Now()
			_, err := amqp.New(o).Dial(ctx, &transport.Config{Creds: h.CredsWith(t, ""), Sink: &sink{}})
			require.ErrorIs(t, err, transport.Timeout, "%v", err)
			require.InDelta(t, 5, time.Since(began).Seconds(), 0.6)
			cancel()
			in.Remove()
		}
	})
}

// A peer that allows too few AMQP sessions is distinguished from one that allows just enough and
// does not answer begin.
func TestAPeerWithFewSessions(t *testing.T) {
	few := func(highest uint16) netopt.Options {
		return between(func(far net.Conn) {
			hello(far, wire.ProtocolAMQP)
			say(far, 0, &wire.Open{ContainerID: "few", MaxFrameSize: 1 << 16, ChannelMax: highest})
			_, _ = io.Copy(io.Discard, far)
		})
	}
	for name, c := range map[string]struct {
		transport func(*amqp.Options) transport.Transport
		least     uint16
	}{
		"Transport": {func(o *amqp.Options) transport.Transport { return amqp.New(o) }, 1},
		"Mux":       {func(o *amqp.Options) transport.Transport { return amqp.NewMux(o) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			for highest := range c.least + 1 {
				testkit.Bubble(t, func(t *testing.T) {
					creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "d",
						Token: func(context.Context) (transport.Token, error) {
							return transport.Token{Text: transport.Hide("SharedAccessSignature sr=x&sig=y")}, nil
						}}
					began := time.Now()
					_, err := c.transport(&amqp.Options{Network: few(highest)}).Dial(t.Context(), &transport.Config{Creds: creds})
					if highest == c.least {
						require.Equal(t, transport.Timeout, transport.KindOf(err), "%v", err)
						return
					}
					require.Equal(t, transport.Unsupported, transport.KindOf(err), "%v", err)
					require.ErrorContains(t, err, "channel-max")
					require.Less(t, time.Since(began), time.Second)
				})
			}
		})
	}
}
