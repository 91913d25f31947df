package engine_test

import (
	"testing"
	"time"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/transporttest"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// TestConformance runs the suite with every network option, and with buffers as boards have them.
func TestConformance(t *testing.T) {
	for _, way := range []struct {
		name   string
		module bool
		net    func(h *hubfixture.Broker) *netopt.Options
		opt    *engine.Options
	}{
		{"plain", false, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
		}, nil},
		{"fixed buffers", false, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
		}, &engine.Options{ReadBuffer: 512, WriteBuffer: 1024}},
		{"TLS", false, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS()}
		}, nil},
		{"module", true, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
		}, nil},
		{"WebSocket without TLS", false, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Tunnel: websocket.MQTT(nil), Plaintext: true, Dial: h.Dial(testbroker.PortHTTP)}
		}, nil},
		{"WebSocket", false, func(h *hubfixture.Broker) *netopt.Options {
			return &netopt.Options{Tunnel: websocket.MQTT(nil), Dial: h.Dial(testbroker.PortHTTPS), TLS: h.ClientTLS()}
		}, nil},
	} {
		t.Run(way.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.New(t)
				if way.module {
					h.BecomeModule(t)
				}
				p := h.Pair(t, engine.New(mqtt.Dialer(way.net(h)), way.opt))
				p.Features |= hubfixture.Calls
				return p
			})
		})
	}
}

// TestConformanceWithABroker runs the suite with a topic map.
func TestConformanceWithABroker(t *testing.T) {
	for _, way := range []struct {
		name   string
		module bool
		opt    engine.Options
	}{
		{name: "device"},
		{name: "module", module: true},
		{name: "fixed buffers", opt: engine.Options{ReadBuffer: 1024, WriteBuffer: 1024}},
	} {
		t.Run(way.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.NewPlain(t, testbroker.BrokerOptions{}, true)
				topics := hubfixture.Topics(true)
				if way.module {
					h.BecomeModule(t)
					topics = hubfixture.ModuleTopics(true)
				}
				o := way.opt
				o.Dialect = topics
				net := &netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
				return h.Pair(t, engine.New(mqtt.Dialer(net), &o))
			})
		})
	}
}

// TestConformanceWithMQTT5 runs the suite with a topic map and MQTT 5, also with a broker that has
// limits, with QoS 2 and with enhanced authentication.
func TestConformanceWithMQTT5(t *testing.T) {
	for _, way := range []struct {
		name   string
		broker testbroker.BrokerOptions
		five   engine.MQTT5Options
		opt    engine.Options
	}{
		{name: "defaults"},
		{name: "fixed buffers", opt: engine.Options{ReadBuffer: 1024, WriteBuffer: 1024}},
		{name: "limits", five: engine.MQTT5Options{ReceiveMaximum: 8, TopicAliases: true},
			broker: testbroker.BrokerOptions{ReceiveMaximum: 5, TopicAliases: 1, KeepAlive: 20 * time.Second,
				SessionExpiry: time.Hour, MaximumPacketSize: 300 << 10}},
		{name: "QoS 2", broker: testbroker.BrokerOptions{CommandQoS: 2}, five: engine.MQTT5Options{ExactlyOnce: true}},
		{name: "enhanced authentication", five: engine.MQTT5Options{Auth: &engine.Auth{Method: testbroker.AuthMethod}}},
		{name: "assigned client id", five: engine.MQTT5Options{AssignClientID: true}},
	} {
		t.Run(way.name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.NewPlain(t, way.broker, false)
				o := way.opt
				o.Dialect, o.Protocol = hubfixture.Topics(false), engine.MQTT5(&way.five)
				net := &netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
				return h.Pair(t, engine.New(mqtt.Dialer(net), &o))
			})
		})
	}
}
