// Package leannet connects package lean on standard Go: TCP, TLS with the system's roots or one's
// own, client certificates, proxies, WebSocket.
//
//	client, err := device.New(creds, lean.New(leannet.Dialer(creds, nil), nil), nil)
//
// # Errors
//
// The failures of a dial have the same kinds as those of package mqtt: Invalid for wrong options;
// Network and Timeout when the hub was not reached, the TLS handshake was cut short, or ctx ended;
// Untrusted when the hub's certificate does not verify, or ClockUnset when that is because it is
// not valid yet by the device's clock; Unauthorized for a client certificate that was refused or
// has expired; Unsupported for TLS without common ground; Protocol for peers that speak something
// else; NotFound or Forbidden when a TLS alert says so; and what the functions of netopt.Options
// return.
package leannet

import (
	"context"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/endpoint"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/wire"
	"github.com/hubline-iot/hubline/transport/mqtt/lean"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// Dialer returns a dial function for lean.New that connects to the hub of creds, over TLS to port
// 8883 by default. Host, clock, and whether there is a token are all that it takes from creds. The
// options are copied; nil means all defaults. Each dial reports wrong options. A Tunnel that must
// reply by itself, as WebSocket must, costs the session one more goroutine.
func Dialer(creds *transport.Credentials, o *netopt.Options) lean.Dial {
	d := &dialer.Dialer{Protocol: &endpoint.Protocol}
	if o != nil {
		d.Network = *o
	}
	wrong := d.Resolve()
	if wrong == nil && d.Network.ProductInfo != "" {
		wrong = wire.Invalid("options: ProductInfo is set; leannet only connects, so give it to lean.Options")
	}
	return func(ctx context.Context) (lean.Conn, error) {
		if wrong != nil {
			return nil, wrong
		}
		cert, err := d.ClientCertificate(ctx, creds)
		if err != nil {
			return nil, endpoint.Error(err)
		}
		outer, socket, err := d.Dial(ctx, creds, cert)
		if err != nil {
			return nil, endpoint.Error(err)
		}
		return newConn(outer, socket), nil
	}
}
