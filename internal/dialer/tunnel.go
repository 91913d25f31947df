package dialer

import (
	"context"
	"errors"
	"net"

	"github.com/hubline-iot/hubline/transport"
)

// A Tunnel carries one protocol within another protocol, which begins with a request of HTTP/1.1.
// It is used by several dials at a time.
type Tunnel interface {
	// Port is where hubs serve the protocol, over TLS or without.
	Port(secure bool) string
	// Open begins the protocol on c, which is TLS already unless Options.Plaintext is set, and returns
	// a connection for the bytes of the protocol that it carries. When ctx ends, c is closed under it.
	// When Open fails, its caller closes c; an *transport.Error keeps its Kind.
	//
	// One goroutine reads from the connection, another one writes to it and closes it; its deadlines
	// are not used, for they are set below c. Close says goodbye as the protocol has it and closes c.
	// A clean end by the peer is read as an error that wraps io.EOF. What the protocol has to write in
	// reply to what it reads must not be written by Read, which would wait for a peer that may wait
	// for us: a connection with a method
	//
	//	Owed() <-chan struct{}
	//
	// gets a Write of no bytes soon after a value came out of the channel, and all that it owes may go
	// out with this Write.
	Open(ctx context.Context, c net.Conn, peer Peer) (net.Conn, error)
}

// Peer is what a Tunnel may want to know of the far end.
type Peer struct {
	// Host is the name that was dialed and that the certificate stands for.
	Host string
	// ClientCertificate: the device proves its identity with one.
	ClientCertificate bool
}

// Owing is what the connection of a Tunnel may be, see there.
type Owing interface{ Owed() <-chan struct{} }

// openTunnel opens the tunnel on c, above socket.
func (o *Options) openTunnel(ctx context.Context, creds *transport.Credentials, c, socket net.Conn) (net.Conn, error) {
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(aborted)
		_ = socket.Close()
	})
	inner, err := o.Tunnel.Open(ctx, c, Peer{Host: creds.DialHost(), ClientCertificate: o.HasCertificate()})
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
