package netopt

import (
	"context"
	"net"
)

// A Tunnel carries a protocol within another one that begins with an HTTP/1.1 request, such as
// WebSocket. Several dials may use it at the same time.
type Tunnel interface {
	// Port returns the port on which hubs serve the tunnel, with TLS or without.
	Port(secure bool) string
	// Open starts the tunnel on c, which is TLS already unless Options.Plaintext is set, and returns
	// the connection for the bytes of the inner protocol. When ctx ends, the caller closes c, and
	// Open must return. When Open fails, the caller closes c; a *transport.Error keeps its Kind.
	//
	// One goroutine reads from the connection; another one writes to it and closes it. Its deadlines
	// are not used: they are set on the socket. After a time-out, Read can be called again and loses
	// nothing. Close sends the closing message of the tunnel's protocol, if it has one, and closes c.
	// When the peer closes the tunnel cleanly, Read returns an error that wraps io.EOF. Read must not
	// write, since it would block while the peer is not reading. A connection that must reply to what
	// it reads implements ControlWriter.
	Open(ctx context.Context, c net.Conn, peer Peer) (net.Conn, error)
}

// Peer describes the far end of a Tunnel.
type Peer struct {
	// Host is the name that was dialed and that the certificate was verified for.
	Host string
	// ClientCertificate is true when the device proves its identity with a certificate.
	ClientCertificate bool
}

// ControlWriter is an optional interface of a Tunnel's connection that must reply to control
// messages, as WebSocket replies to pings.
type ControlWriter interface {
	// ControlPending returns a channel that receives a value when replies are waiting. The transport
	// then calls Write with no bytes, which writes all replies.
	ControlPending() <-chan struct{}
}
