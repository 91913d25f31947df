package hub

import (
	"crypto/tls"
	"net"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// A Stack is what a port of the hub serves.
type Stack struct {
	Protocol hubdata.Protocol // at first; a client on HTTP can switch to another protocol
	TLS      bool
}

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
