package dialer

import (
	"context"
	"errors"
	"net"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// openTunnel opens the tunnel on c, above socket.
func (d *Dialer) openTunnel(ctx context.Context, creds *transport.Credentials, c, socket net.Conn) (net.Conn, error) {
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		_ = socket.Close()
	})
	inner, err := d.Network.Tunnel.Open(ctx, c,
		netopt.Peer{Host: creds.DialHost(), ClientCertificate: d.hasCertificate()})
	if !stop() {
		<-aborted
	}
	switch {
	case err != nil:
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case inner == nil:
		err = errors.New("the tunnel opened no connection")
	default:
		return inner, nil
	}
	_ = socket.Close()
	return nil, err
}
