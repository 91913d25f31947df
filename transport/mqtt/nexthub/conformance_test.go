package nexthub_test

import (
	"testing"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/engine"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/transporttest"
)

// TestConformance runs the suite, also with buffers as boards have them and with a hub that has
// limits. The hub has no messages for devices and no keys; a device that it does not know stands
// for one with a wrong key.
func TestConformance(t *testing.T) {
	for name, way := range map[string]struct {
		hub testbroker.MQTTv5Options
		opt engine.Options
	}{
		"default":       {},
		"fixed buffers": {opt: engine.Options{ReadBuffer: 1024, WriteBuffer: 1024}},
		"limits":        {hub: testbroker.MQTTv5Options{ReceiveMaximum: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			transporttest.Run(t, func(t testing.TB) *transporttest.Pair {
				h := hubfixture.NewWith(t, &testbroker.Options{MQTTv5: &way.hub})
				o := way.opt
				o.Dialect = &nexthub.Hub{}
				net := &netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}
				p := h.Pair(t, engine.New(mqtt.Dialer(net), &o))
				p.Creds = &transport.Credentials{Host: h.HostName(), DeviceID: "dev-1"}
				p.WrongCreds = &transport.Credentials{Host: h.HostName(), DeviceID: "dev-2"}
				p.Features = hubfixture.Calls
				p.Lacks, p.WholeSeconds, p.Unasked = transporttest.LacksAll(), true, true
				p.MarksResent = false // MQTT 5 sets DUP only within a session
				return p
			})
		})
	}
}
