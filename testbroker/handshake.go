package testbroker

import (
	"crypto/tls"
	"net"
)

// port is what the hub speaks where connections come in.
type port struct {
	speaks Protocol // in the beginning; HTTP can switch to another
	secure bool     // TLS
}

// secure puts TLS on a connection. The handshake itself happens when the connection is first read,
// unless a fault has it otherwise.
func (h *Hub) secure(c *conn, offer []string) error {
	if in := h.faults.take(MuteHandshake, c.id); in != nil {
		c.blame(faultError(MuteHandshake))
		if c.silence() {
			h.happened(in, c)
		}
		return nil
	}
	if in := h.faults.take(NotTLS, c.id); in != nil {
		var first [16]byte
		if _, err := c.raw.Read(first[:]); err != nil {
			h.faults.release(in)
			return err
		}
		h.happened(in, c)
		c.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
		c.farewell(faultError(NotTLS))
		c.drain()
		return faultError(NotTLS)
	}
	below := c.under
	config := h.serverTLS()
	config.NextProtos = offer
	if in := h.faults.take(CutHandshake, c.id); in != nil {
		c.pending = in
		below = cutter{below, c}
	} else if in := h.faults.take(OldTLS, c.id); in != nil {
		c.pending = in
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c.happened()
			return nil, nil
		}
	} else if in := h.faults.take(ExpiredCertificate, c.id); in != nil {
		c.pending = in
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c.happened()
			return h.expiredCertificate(), nil
		}
	}
	c.tls = tls.Server(below, config)
	c.stream = c.tls
	return nil
}

// happened counts the fault that was pending.
func (c *conn) happened() {
	if c.pending != nil {
		c.hub.happened(c.pending, c)
		c.pending = nil
	}
}

// A cutter lets the beginning of the first write through and ends the connection.
type cutter struct {
	net.Conn
	c *conn
}

// Write sends a few bytes.
func (k cutter) Write(p []byte) (int, error) {
	if k.c.mode.Load() != open {
		return 0, net.ErrClosed
	}
	k.c.happened()
	k.Conn.Write(p[:min(len(p), 10)])
	k.c.blame(faultError(CutHandshake))
	k.c.leave(over)
	k.Conn.Close()
	return 0, net.ErrClosed
}
