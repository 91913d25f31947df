package nexthub_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/nexthub"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// BenchmarkSend compares the profile with MQTT 5 to a plain broker, over a loopback port to the
// hub in this process, which keeps few messages.
func BenchmarkSend(b *testing.B) {
	for name, c := range map[string]struct {
		hub testbroker.Options
		opt mqtt.Options
	}{
		"profile": {testbroker.Options{MQTTv5: &testbroker.MQTTv5Options{}}, mqtt.Options{Dialect: &nexthub.Hub{}}},
		"plain MQTT 5": {testbroker.Options{Broker: &testbroker.BrokerOptions{Anonymous: true}},
			mqtt.Options{Dialect: &mqtt.Topics{Telemetry: "devices/{device}/up"}, Protocol: mqtt.MQTT5(nil)}},
	} {
		b.Run(name, func(b *testing.B) {
			c.hub.Keep = 4096
			h, err := testbroker.New(&c.hub)
			require.NoError(b, err)
			defer h.Close()
			_, err = h.AddDevice("dev-1")
			require.NoError(b, err)
			addr, err := h.Listen(testbroker.PortMQTT, "127.0.0.1:0")
			require.NoError(b, err)
			c.opt.Network = netopt.Options{Plaintext: true,
				Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, addr.String())
				}}
			d, err := device.New(creds(), mqtt.New(&c.opt), &device.Options{Window: 256})
			require.NoError(b, err)
			defer d.Close()
			require.NoError(b, d.Open(b.Context()))
			m := &transport.Message{Body: make([]byte, 100), ContentType: "application/json", ContentEncoding: "utf-8"}
			ring := make([]device.Receipt, 1024)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N + len(ring) {
				r := &ring[i%len(ring)]
				if i >= len(ring) && i-len(ring) < b.N {
					require.NoError(b, r.Wait(b.Context()))
				}
				if i < b.N {
					require.NoError(b, d.Enqueue(b.Context(), m, r))
				}
			}
		})
	}
}
