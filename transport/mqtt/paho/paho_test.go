package paho_test

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/transporttest"
	"github.com/hubline-iot/hubline/transport/websocket"
)

func TestConformance(t *testing.T) {
	for _, way := range []struct {
		name   string
		module bool
		net    func(h *hubfixture.Broker) netopt.Options
	}{
		{"plain", false, func(h *hubfixture.Broker) netopt.Options {
			return netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
		}},
		{"module", true, func(h *hubfixture.Broker) netopt.Options {
			return netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
		}},
		{"TLS", false, func(h *hubfixture.Broker) netopt.Options {
			return netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS()}
		}},
		{"WebSocket", false, func(h *hubfixture.Broker) netopt.Options {
			return netopt.Options{Tunnel: websocket.MQTT(nil), Dial: h.Dial(testbroker.PortHTTPS), TLS: h.ClientTLS()}
		}},
	} {
		t.Run(way.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.New(t)
				if way.module {
					h.BecomeModule(t)
				}
				p := h.Pair(t, paho.New(&mqtt.Options{Network: way.net(h)}))
				p.Features |= hubfixture.Calls
				p.MarksResent = false
				return p
			})
		})
	}
}

func TestConformanceWithABroker(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
		h := hubfixture.NewPlain(t, testbroker.BrokerOptions{}, true)
		net := netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
		p := h.Pair(t, paho.New(&mqtt.Options{Dialect: hubfixture.Topics(true), Network: net}))
		p.MarksResent = false
		return p
	})
}
