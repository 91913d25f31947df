package hub

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
)

// secure puts TLS on a connection. The handshake runs at the first read, unless a fault intervenes.
func (h *Hub) secure(c *Conn, offer []string) error {
	if in := h.Faults.Take(fault.MuteHandshake, c.ID); in != nil {
		c.SetCause(FaultError(fault.MuteHandshake))
		if c.Silence() {
			h.Happened(in, c)
		}
		return nil
	}
	if in := h.Faults.Take(fault.NotTLS, c.ID); in != nil {
		var first [16]byte
		if _, err := c.Raw.Read(first[:]); err != nil {
			h.Faults.Release(in)
			return err
		}
		h.Happened(in, c)
		c.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
		c.CloseGracefully(FaultError(fault.NotTLS))
		c.Drain()
		return FaultError(fault.NotTLS)
	}
	below := c.Under
	config := h.Authority.ServerTLS()
	config.NextProtos = offer
	if in := h.Faults.Take(fault.CutHandshake, c.ID); in != nil {
		c.pending = in
		below = cutter{below, c}
	} else if in := h.Faults.Take(fault.OldTLS, c.ID); in != nil {
		c.pending = in
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c.happened()
			return nil, nil
		}
	} else if in := h.Faults.Take(fault.ExpiredCertificate, c.ID); in != nil {
		c.pending = in
		config.SessionTicketsDisabled = true // a resumption shows no certificate
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c.happened()
			return h.Authority.Expired(), nil
		}
	}
	answer := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c.greeted.Store(true)
		if answer == nil {
			return nil, nil
		}
		return answer(hello)
	}
	c.TLS = tls.Server(below, config)
	c.Stream = c.TLS
	return nil
}

// happened counts the pending fault.
func (c *Conn) happened() {
	if c.pending != nil {
		c.Hub.Happened(c.pending, c)
		c.pending = nil
	}
}

// A cutter sends only the beginning of the first write, then ends the connection.
type cutter struct {
	net.Conn
	c *Conn
}

// Write sends the first bytes of p.
func (k cutter) Write(p []byte) (int, error) {
	if k.c.Mode.Load() != Open {
		return 0, net.ErrClosed
	}
	k.c.happened()
	k.Conn.Write(p[:min(len(p), 10)])
	k.c.SetCause(FaultError(fault.CutHandshake))
	k.c.Leave(Over)
	k.Conn.Close()
	return 0, net.ErrClosed
}

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
