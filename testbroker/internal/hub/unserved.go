package hub

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/hubline-iot/hubline/testbroker/event"
)

// Heard records that the client has sent something of its protocol.
func (c *Conn) Heard() { c.heard.Store(true) }

// errUntrusted is what a client that does not trust the hub may need.
var errUntrusted = errors.New("if the client does not trust the certificate, give it the hub's authority")

// Unserved reports the end of a connection on which nobody was served. A client that has said
// nothing and disconnects was not refused: it looked whether the port is open, as health checks do.
// After a handshake it may be one that does not trust the certificate, and says so to nobody.
func (h *Hub) Unserved(c *Conn, cause error) {
	greeted, shaken := c.greeted.Load(), c.TLS == nil || c.TLS.ConnectionState().HandshakeComplete
	silent := HungUp(cause) && !c.heard.Load()
	switch {
	case silent && !greeted:
	case silent && shaken:
		h.Event(event.Event{Kind: event.Silent, Err: errUntrusted}, c)
	case greeted && !shaken && endedByClient(cause):
		h.Event(event.Event{Kind: event.Refused, Err: fmt.Errorf("%w: TLS handshake: %w", cause, errUntrusted)}, c)
	default:
		h.Event(event.Event{Kind: event.Refused, Err: cause}, c)
	}
}

// HungUp reports whether the client ended the connection, in order or by RST.
func HungUp(err error) bool {
	op := (*net.OpError)(nil)
	return errors.Is(err, io.EOF) || errors.Is(err, ErrDisconnect) ||
		errors.As(err, &op) && op.Op == "read" && !op.Timeout()
}

// tlsOps are the operations of errors that come from an alert of the client. An alert without
// encryption, which some clients send too late, is a local error.
var tlsOps = map[string]bool{"remote error": true, "local error": true}

// endedByClient reports whether the client has disconnected, or has sent a TLS alert.
func endedByClient(err error) bool {
	op := (*net.OpError)(nil)
	return HungUp(err) || errors.As(err, &op) && tlsOps[op.Op]
}
