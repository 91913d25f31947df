package lean_test

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/mqtt/lean/leannet"
	"github.com/hubline-iot/hubline/transport/mqtt/mqttws"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

// TestConformance runs the suite with every network option, and with buffers as boards have them.
func TestConformance(t *testing.T) {
	for _, way := range []struct {
		name   string
		module bool
		net    func(h *hubfixture.Broker) *netopt.Options
		opt    *lean.Options
	}{
		{"plain", false, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
		}, nil},
		{"fixed buffers", false, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
		}, &lean.Options{ReadBuffer: 512, WriteBuffer: 1024}},
		{"TLS", false, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS()}
		}, nil},
		{"module", true, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
		}, nil},
		{"WebSocket without TLS", false, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Tunnel: mqttws.New(nil), Plaintext: true, Dial: h.Dial(testbroker.PortHTTP)}
		}, nil},
		{"WebSocket", false, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Tunnel: mqttws.New(nil), Dial: h.Dial(testbroker.PortHTTPS), TLS: h.ClientTLS()}
		}, nil},
	} {
		t.Run(way.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.New(t)
				if way.module {
					h.BecomeModule(t)
				}
				p := h.Pair(t, lean.New(leannet.Dialer(h.CredsWith(t, ""), way.net(h)), way.opt))
				p.Features |= hubfixture.Calls
				return p
			})
		})
	}
}
