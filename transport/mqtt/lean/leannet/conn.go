package leannet

import (
	"net"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/transport/mqtt/internal/endpoint"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// closeTime is how long TLS and a tunnel may take for their goodbyes.
const closeTime = 250 * time.Millisecond

// conn is a connection for package lean: outer carries the bytes, socket lies under it; they are
// the same without TLS and tunnel.
//
// The socket is a dialer.ProgressConn, so a peer that stops reading is found. Writes by a goroutine
// of the tunnel's own, which answers what the peer asks of the tunnel, go between the others.
type conn struct {
	net.Conn // outer
	socket   net.Conn

	// Of a tunnel that writes by itself; nil without.
	turn   chan struct{} // holds a value while somebody writes; capacity 1
	closed chan struct{} // closed by Close
	ended  chan struct{} // closed by the goroutine's end
	over   chan struct{} // closed when nobody may write any more
}

func newConn(outer, socket net.Conn) *conn {
	c := &conn{Conn: outer, socket: socket}
	if o, ok := outer.(netopt.ControlWriter); ok {
		c.turn, c.closed, c.ended, c.over = make(chan struct{}, 1), make(chan struct{}), make(chan struct{}),
			make(chan struct{})
		go c.reply(o.ControlPending())
	}
	return c
}

// reply writes the tunnel's pending replies, until Close.
func (c *conn) reply(pending <-chan struct{}) {
	defer close(c.ended)
	for {
		select {
		case <-pending:
			if _, err := c.Write(nil); err != nil {
				_ = c.socket.Close() // the reader takes it from there
				return
			}
		case <-c.closed:
			return
		}
	}
}

// Write writes all of p.
func (c *conn) Write(p []byte) (int, error) {
	if c.turn != nil {
		select {
		case c.turn <- struct{}{}:
			defer func() { <-c.turn }()
		case <-c.over:
			return 0, net.ErrClosed
		}
	}
	return c.Conn.Write(p)
}

// Progress is the socket's. It implements transport.Progressor.
func (c *conn) Progress() time.Time { return dialer.Progress(c.socket) }

// Close says the goodbyes of tunnel and TLS, for closeTime at most, and joins the tunnel's
// goroutine. TLS would wait 5 s.
func (c *conn) Close() error {
	if c.Conn == c.socket {
		return c.socket.Close()
	}
	cut := make(chan struct{})
	t := time.AfterFunc(closeTime, func() {
		_ = c.socket.Close()
		close(cut)
	})
	if c.turn != nil {
		close(c.closed)
		<-c.ended
		c.turn <- struct{}{} // for good; a writer that is stuck is freed by the timer
		close(c.over)
	}
	err := c.Conn.Close()
	if !t.Stop() {
		<-cut
	}
	_ = c.socket.Close()
	return err
}

// SetReadDeadline is the socket's.
func (c *conn) SetReadDeadline(t time.Time) error { return c.socket.SetReadDeadline(t) }

// Explain tells what a failed handshake means, such as a TLS alert in place of a CONNACK.
func (c *conn) Explain(err error) error { return endpoint.Error(err) }
