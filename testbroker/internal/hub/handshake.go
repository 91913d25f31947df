package hub

import (
	"crypto/tls"
	"net"
)

// port is the protocol stack of a place where connections come in.
type port struct {
	speaks Protocol // at first; HTTP can switch to another protocol
	secure bool     // TLS
}

// secure puts TLS on a connection. The handshake runs at the first read, unless a fault intervenes.
func (h *Hub) secure(c *Conn, offer []string) error {
	if in := h.Faults.Take(MuteHandshake, c.ID); in != nil {
		c.SetCause(FaultError(MuteHandshake))
		if c.Silence() {
			h.Happened(in, c)
		}
		return nil
	}
	if in := h.Faults.Take(NotTLS, c.ID); in != nil {
		var first [16]byte
		if _, err := c.Raw.Read(first[:]); err != nil {
			h.Faults.Release(in)
			return err
		}
		h.Happened(in, c)
		c.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
		c.CloseGracefully(FaultError(NotTLS))
		c.Drain()
		return FaultError(NotTLS)
	}
	below := c.Under
	config := h.serverTLS()
	config.NextProtos = offer
	if in := h.Faults.Take(CutHandshake, c.ID); in != nil {
		c.pending = in
		below = cutter{below, c}
	} else if in := h.Faults.Take(OldTLS, c.ID); in != nil {
		c.pending = in
		config.MinVersion, config.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c.happened()
			return nil, nil
		}
	} else if in := h.Faults.Take(ExpiredCertificate, c.ID); in != nil {
		c.pending = in
		config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			c.happened()
			return h.expiredCertificate(), nil
		}
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
	k.c.SetCause(FaultError(CutHandshake))
	k.c.Leave(Over)
	k.Conn.Close()
	return 0, net.ErrClosed
}
