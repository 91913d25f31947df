package mqtt_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/transporttest"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// TestConformance runs the suite with every network option.
func TestConformance(t *testing.T) {
	for _, way := range []struct {
		name   string
		module bool
		opt    func(h *hubfixture.Broker) *mqtt.Options
	}{
		{"plain", false, func(h *hubfixture.Broker) *mqtt.Options {
			return &mqtt.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}}
		}},
		{"TLS", false, func(h *hubfixture.Broker) *mqtt.Options {
			return &mqtt.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS()}}
		}},
		{"module", true, func(h *hubfixture.Broker) *mqtt.Options {
			return &mqtt.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}}
		}},
		{"WebSocket without TLS", false, func(h *hubfixture.Broker) *mqtt.Options {
			return &mqtt.Options{Network: netopt.Options{Tunnel: websocket.MQTT(nil), Plaintext: true,
				Dial: h.Dial(testbroker.PortHTTP)}}
		}},
		{"WebSocket", false, func(h *hubfixture.Broker) *mqtt.Options {
			return &mqtt.Options{Network: netopt.Options{Tunnel: websocket.MQTT(nil), Dial: h.Dial(testbroker.PortHTTPS),
				TLS: h.ClientTLS()}}
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.New(t)
				if way.module {
					h.BecomeModule(t)
				}
				p := h.Pair(t, mqtt.New(way.opt(h)))
				p.Features |= hubfixture.Calls
				return p
			})
		})
	}
}

// TestConformanceWithABroker runs the suite with a topic map.
func TestConformanceWithABroker(t *testing.T) {
	for name, module := range map[string]bool{"device": false, "module": true} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.NewPlain(t, testbroker.BrokerOptions{}, true)
				topics := hubfixture.Topics(true)
				if module {
					h.BecomeModule(t)
					topics = hubfixture.ModuleTopics(true)
				}
				net := netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
				return h.Pair(t, mqtt.New(&mqtt.Options{Dialect: topics, Network: net}))
			})
		})
	}
}

// With certificate, WebSocket and TLS together, the request does not carry iothub-no-client-cert.
func TestACertificateOverWebSocket(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		cert := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
		_, err := h.AddDeviceX509("dev-x", testbroker.Thumbprint(cert.Leaf))
		require.NoError(t, err)
		o := &mqtt.Options{Network: netopt.Options{Tunnel: websocket.MQTT(nil), Dial: h.Dial(testbroker.PortHTTPS),
			TLS: h.ClientTLS()}}
		o.Network.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
		ctx, cancel := context.WithCancel(t.Context())
		creds := &transport.Credentials{Host: h.HostName(), DeviceID: "dev-x"}
		s, err := mqtt.New(o).Dial(ctx, &transport.Config{Creds: creds, Window: 1, Sink: endAfterFirst{cancel}})
		require.NoError(t, err)
		s.Send([]transport.Item{{Msg: &transport.Message{Body: []byte("x")}}})
		require.Error(t, s.Run(ctx))
		require.Len(t, h.Messages(), 1)
	})
}
