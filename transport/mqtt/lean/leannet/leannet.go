// Package leannet connects package lean on standard Go: TCP, TLS with the system's roots or others,
// client certificates, proxies, WebSocket.
//
//	client, err := device.New(creds, lean.New(leannet.Dialer(creds, nil), nil), nil)
//
// # Errors
//
// A failed dial has one of the kinds of package mqtt:
//
//   - Invalid for wrong options;
//   - Network and Timeout when the hub was not reached, the TLS handshake was cut short, or ctx
//     ended;
//   - Untrusted when the hub's certificate does not verify, or ClockUnset when it is not
//     valid yet by the device's clock;
//   - Unauthorized for a client certificate that was refused or has expired;
//   - Unsupported when the two sides share no TLS version or parameters;
//   - Protocol for peers that speak another protocol;
//   - NotFound or Forbidden when a TLS alert says so;
//   - the Kind that the functions of netopt.Options return.
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
// 8883 by default. From creds it uses only the host, the clock, and whether there is a token. The
// options are copied; nil means all defaults. Each dial reports wrong options. A Tunnel that sends
// replies by itself, as WebSocket does, costs the session one more goroutine.
func Dialer(creds *transport.Credentials, o *netopt.Options) lean.Dial {
	d := &dialer.Dialer{Protocol: &endpoint.Protocol}
	if o != nil {
		d.Network = *o
	}
	invalid := d.Resolve()
	if invalid == nil && d.Network.ProductInfo != "" {
		invalid = wire.Invalid("options: ProductInfo is set; leannet only connects, so give it to lean.Options")
	}
	return func(ctx context.Context) (lean.Conn, error) {
		if invalid != nil {
			return nil, invalid
		}
		cert, err := d.ClientCertificate(ctx, creds)
		if err != nil {
			return nil, endpoint.Error(err)
		}
		outer, socket, err := d.Dial(ctx, creds, cert)
		if err != nil {
			return nil, endpoint.Error(err)
		}
		return endpoint.NewConn(outer, socket), nil
	}
}
