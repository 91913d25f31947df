// Package mqttws carries MQTT over WebSocket, for networks that allow only HTTPS, on the library
// gorilla/websocket.
//
//	t := mqtt.New(&mqtt.Options{Network: netopt.Options{Tunnel: mqttws.New(nil)}})
//
// It connects to wss://HOST:443/$iothub/websocket. It is a separate package because it links
// net/http. mqtt.ParseBroker takes URLs with ws and wss in programs that import it.
//
// # Errors
//
// A response other than the upgrade is a *transport.StatusError within the *transport.Error of the
// failed Dial. Its Retry-After is kept. Kind is
//
//   - Unauthorized for 401 and 407;
//   - Forbidden for 402, 403 and 451;
//   - NotFound for 404 and 410;
//   - Timeout for 408 and 504;
//   - Throttled for 429;
//   - Unsupported for 426, 501 and 505;
//   - Protocol for 400, 405, 406, redirections, which are not followed, and all other codes
//     below 400;
//   - Unknown for all other codes from 400 to 499;
//   - Unavailable for 500, 502, 503 and all other codes from 500.
//
// A server that does not speak HTTP or WebSocket, or does not agree to MQTT, is Protocol. Errors of
// the network, and of the hub within the tunnel, are the same as without the tunnel.
package mqttws

import (
	"context"
	"net"

	"github.com/hubline-iot/hubline/internal/brokerurl"
	"github.com/hubline-iot/hubline/transport/internal/websock"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of a Tunnel. The zero value and nil are right for a hub. Path is the
// path and query of the request, beginning with "/"; empty: "/$iothub/websocket", with
// "?iothub-no-client-cert=true" if there is no client certificate. Header is copied and added to
// the request, which only TLS encrypts.
type Options = websock.Options

// Tunnel is MQTT over WebSocket, for netopt.Options.Tunnel. It is safe for concurrent use.
type Tunnel struct{ t *websock.Tunnel }

var _ netopt.Tunnel = (*Tunnel)(nil)

// New returns a Tunnel with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Dial, with Kind Invalid.
func New(o *Options) *Tunnel {
	return &Tunnel{websock.New(websock.MQTT, o)}
}

func init() {
	brokerurl.WebSocket = func(path string) netopt.Tunnel { return New(&Options{Path: path}) }
}

// Port returns 443, without TLS 80.
func (t *Tunnel) Port(secure bool) string { return t.t.Port(secure) }

// Open performs the WebSocket handshake on c and returns the connection for the engine.
func (t *Tunnel) Open(ctx context.Context, c net.Conn, peer netopt.Peer) (net.Conn, error) {
	return t.t.Open(ctx, c, peer)
}
