package mqtt

import "github.com/hubline-iot/hubline/internal/dialer"

// A Tunnel carries MQTT within another protocol. It is used by several dials at a time. It has two
// methods:
//
//	Port(secure bool) string
//
// is where hubs serve the protocol, over TLS or without.
//
//	Open(ctx context.Context, c net.Conn, peer Peer) (net.Conn, error)
//
// begins the protocol on c, which is TLS already unless Options.Plaintext is set, and returns a
// connection for the bytes of MQTT. When ctx ends, c is closed under it. When Open fails, its
// caller closes c; an *transport.Error keeps its Kind.
//
// One goroutine reads from the connection, another one writes to it and closes it; its deadlines
// are not used, for they are set below c. Close says goodbye as the protocol has it and closes c. A
// clean end by the peer is read as an error that wraps io.EOF. What the protocol has to write in
// reply to what it reads must not be written by Read, which would wait for a peer that may wait for
// us: a connection with a method
//
//	Owed() <-chan struct{}
//
// gets a Write of no bytes soon after a value came out of the channel, and all that it owes may go
// out with this Write.
type Tunnel = dialer.Tunnel

// Peer is what a Tunnel may want to know of the far end: Host is the name that was dialed and that
// the certificate stands for; ClientCertificate says that the device proves its identity with one.
type Peer = dialer.Peer

// owing is what the connection of a Tunnel may be, see there.
type owing = dialer.Owing
