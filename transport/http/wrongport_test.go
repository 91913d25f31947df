package http_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// An MQTT broker closes the connection when it gets a request, or the beginning of a TLS handshake.
func TestAPortThatSpeaksAnotherProtocolIsNamed(t *testing.T) {
	for name, reset := range map[string]bool{"closed": false, "reset": true} {
		for want, plaintext := range map[string]bool{
			"in place of the first answer; this port may speak another protocol than HTTP": true,
			"this port may speak plain HTTP or another protocol: check port and scheme":    false,
		} {
			t.Run(name+", "+want, func(t *testing.T) {
				addr := testkit.Serve(t, testkit.HangUp(reset))
				creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1",
					Token: transport.FixedToken("x")}
				tr := hubhttp.New(&hubhttp.Options{Network: netopt.Options{Plaintext: plaintext, Addr: addr}})
				_, err := tr.Dial(t.Context(), &transport.Config{Creds: creds, Window: 1})
				require.ErrorIs(t, err, transport.Network)
				require.ErrorContains(t, err, want)
			})
		}
	}
}
