// Package mqttws carries MQTT over WebSocket, for networks that let nothing but HTTPS out, on the
// library gorilla/websocket.
//
//	network := netopt.Options{Tunnel: mqttws.New(nil)}
//	t := mqtt.New(&mqtt.Options{Network: network})
//	t := lean.New(leannet.Dialer(creds, &network), nil)
//
// Each connects to wss://HOST:443/$iothub/websocket. It is a package of its own because it brings
// net/http along.
//
// # Errors
//
// A server that answers with anything but the upgrade is a *transport.StatusError within the
// *transport.Error of the failed Dial. Kind is Unauthorized for 401 and 407; Forbidden for 402, 403
// and 451; NotFound for 404 and 410; Timeout for 408 and 504; Throttled for 429; Unavailable for
// 500, 502, 503 and all others from 500 on that are not listed; Unsupported for 426, 501 and 505;
// Unknown for all others from 400 on that are not listed; Protocol for 400, 405, 406, for
// redirections, which are not followed, and for all below. Retry-After is kept. A server that
// speaks no HTTP or WebSocket, or does not agree to MQTT, is Protocol. What the network does, and
// what the hub answers within the tunnel, is as without it.
package mqttws

import (
	"context"
	"net"

	"github.com/hubline-iot/hubline/transport/internal/websock"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of a Tunnel. The zero value and nil are right for a hub. Path is the
// path and query of the request, beginning with "/"; empty: "/$iothub/websocket", with
// "?iothub-no-client-cert=true" unless a client certificate is at hand. Header is added to the
// request, which shows it readable below TLS only; it is copied.
type Options = websock.Options

// Tunnel is MQTT over WebSocket, for netopt.Options.Tunnel. It is safe for
// concurrent use.
type Tunnel struct{ t *websock.Tunnel }

var _ netopt.Tunnel = (*Tunnel)(nil)

// New returns a Tunnel with the given options, which are copied; nil means all defaults. Wrong
// options are reported by Dial, with Kind Invalid.
func New(o *Options) *Tunnel {
	return &Tunnel{websock.New(websock.Protocol{Name: "MQTT", Sub: "mqtt", Example: "/mqtt"}, o)}
}

// Port returns 443, without TLS 80.
func (t *Tunnel) Port(secure bool) string { return t.t.Port(secure) }

// Open sends the request and returns the connection, for the engine.
func (t *Tunnel) Open(ctx context.Context, c net.Conn, peer netopt.Peer) (net.Conn, error) {
	return t.t.Open(ctx, c, peer)
}
