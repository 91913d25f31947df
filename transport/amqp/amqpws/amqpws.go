// Package amqpws carries AMQP over WebSocket, for networks that allow HTTPS only. It uses the
// library gorilla/websocket.
//
//	t := amqp.New(&amqp.Options{Network: netopt.Options{Tunnel: amqpws.New(nil)}})
//
// It connects to wss://HOST:443/$iothub/websocket with the subprotocol "AMQPWSB10". It is a
// separate package because it needs net/http.
//
// # Errors
//
// When a server answers with anything but the upgrade, Dial fails with a *transport.Error that
// wraps a *StatusError; package mqttws lists the Kind of each status. When a server does not speak
// HTTP or WebSocket, or refuses AMQP, the Kind is Protocol. All other errors are as without the
// tunnel.
package amqpws

import (
	"context"
	"net"

	"github.com/hubline-iot/hubline/transport/internal/websock"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Options are the settings of a Tunnel. The zero value and nil are right for a hub. Path is the
// path and query of the request, beginning with "/". Empty: "/$iothub/websocket", with
// "?iothub-no-client-cert=true" unless there is a client certificate. Header is added to the
// request and is copied; only TLS protects it.
type Options = websock.Options

// Tunnel is AMQP over WebSocket, for netopt.Options.Tunnel. It is safe for concurrent use.
type Tunnel struct{ t *websock.Tunnel }

var _ netopt.Tunnel = (*Tunnel)(nil)

// New returns a Tunnel to a hub, with the given options, which are copied; nil means all defaults.
// Wrong options are reported by Dial, with Kind Invalid.
func New(o *Options) *Tunnel { return open("AMQPWSB10", o) }

// NewStandard is New for brokers that require the subprotocol of the standard, "amqp".
func NewStandard(o *Options) *Tunnel { return open("amqp", o) }

func open(sub string, o *Options) *Tunnel {
	return &Tunnel{websock.New(websock.Protocol{Name: "AMQP", Sub: sub, Example: "/amqp"}, o)}
}

// Port returns 443, without TLS 80.
func (t *Tunnel) Port(secure bool) string { return t.t.Port(secure) }

// Open performs the WebSocket handshake on c and returns the connection. The transport calls it.
func (t *Tunnel) Open(ctx context.Context, c net.Conn, peer netopt.Peer) (net.Conn, error) {
	return t.t.Open(ctx, c, peer)
}
