package http_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

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
				l, err := net.Listen("tcp", "127.0.0.1:0")
				require.NoError(t, err)
				served := make(chan struct{})
				go func() {
					defer close(served)
					for {
						c, err := l.Accept()
						if err != nil {
							return
						}
						_, _ = c.Read(make([]byte, 1<<16))
						if reset {
							_ = c.(*net.TCPConn).SetLinger(0)
						}
						_ = c.Close()
					}
				}()
				defer func() {
					_ = l.Close()
					<-served
				}()
				creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1",
					Token: transport.FixedToken("x")}
				tr := hubhttp.New(&hubhttp.Options{Network: netopt.Options{Plaintext: plaintext, Addr: l.Addr().String()}})
				_, err = tr.Dial(t.Context(), &transport.Config{Creds: creds, Window: 1})
				require.ErrorIs(t, err, transport.Network)
				require.ErrorContains(t, err, want)
			})
		}
	}
}
