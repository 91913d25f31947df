package amqp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// An MQTT broker closes the connection when it gets AMQP's header, or a request.
func TestAPortThatSpeaksAnotherProtocolIsNamed(t *testing.T) {
	for name, row := range map[string]struct {
		network netopt.Options
		want    string
	}{
		"AMQP":      {netopt.Options{}, "AMQP; if it expects TLS, use amqps://"},
		"WebSocket": {netopt.Options{Tunnel: websocket.AMQP(nil)}, "HTTP; if it expects TLS, use wss://"},
	} {
		for how, reset := range map[string]bool{"closed": false, "reset": true} {
			t.Run(name+", "+how, func(t *testing.T) {
				addr := testkit.Serve(t, testkit.HangUp(reset))
				row.network.Plaintext, row.network.Addr = true, addr
				creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1",
					Token: transport.FixedToken("x")}
				_, err := amqp.New(&amqp.Options{Network: row.network}).Dial(t.Context(),
					&transport.Config{Creds: creds, Window: 1})
				require.ErrorIs(t, err, transport.Network)
				require.ErrorContains(t, err,
					"in place of the first answer; this port may speak another protocol than "+row.want)
			})
		}
	}
}
