package interop

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// TestModuleSDKAndANewCertificate restarts the gateway with a certificate of another authority. Our
// modules fetch the trust bundle again. The official SDK fetches it at its start only.
func TestModuleSDKAndANewCertificate(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"mqtt", "amqp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEdgeSite(t, wayOf(name))
			e.output("before")
			require.Empty(t, e.next("sent", "module").Text)

			require.NoError(t, e.hub.StopGateway())
			e.hub.RotateCertificate()
			require.NoError(t, e.hub.StartGateway())
			for _, g := range e.ours {
				require.NoError(t, g.client.Send(soon(t), &transport.Message{ID: "after, of " + g.name}))
			}
			e.arrives("after, of ", len(e.ours))
			old := e.script
			e.output("of the old process")
			e.startNode(t, e.sdkTransport)
			e.output("of a new process")
			require.Empty(t, e.next("sent", "module").Text)
			e.arrives("of a new process", 1)
			require.Equal(t, 1, old.count("sent", "module"))
			e.arrives("of the old process", 0)
			seen(t, "after a new certificate of the gateway our modules go on; azure-iot-device connects again once its "+
				"process starts again")
		})
	}
}

// output has the official SDK send a message to an output without a route of its own.
func (e *edgeSite) output(id string) {
	e.t.Helper()
	e.tell(map[string]any{"do": "output", "name": "module", "output": "up",
		"messages": []map[string]any{{"payload": id, "id": id}}})
}
