package mqtt

import (
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// closeTime bounds the close handshakes of TLS and a tunnel.
const closeTime = 250 * time.Millisecond

// conn is a connection for a session. outer carries the bytes; socket is its lowest layer. The
// two are the same without TLS and tunnel.
//
// The socket is a dialer.ProgressConn, so a peer that stops reading is detected. A tunnel's replies
// to its peer are written by the goroutine writeReplies, between the session's writes.
type conn struct {
	net.Conn   // outer
	socket     net.Conn
	expires    time.Time   // end of the client certificate; zero without one
	mayWantTLS atomic.Bool // there is neither TLS nor a tunnel, and the peer has sent nothing

	// Of a netopt.ControlWriter; nil for others.
	writing      chan struct{} // a writer holds it by putting a value into it; capacity 1
	closed       chan struct{} // closed by Close
	repliesEnded chan struct{} // closed when writeReplies ends
	writesEnded  chan struct{} // closed when no more writes are allowed
	replyErr     error         // why writeReplies ended before Close; valid when repliesEnded is closed
}

// newConn returns the connection. It must be closed.
func newConn(outer, socket net.Conn) *conn {
	c := &conn{Conn: outer, socket: socket}
	c.mayWantTLS.Store(outer == socket)
	if o, ok := outer.(netopt.ControlWriter); ok {
		c.writing, c.closed, c.repliesEnded, c.writesEnded = make(chan struct{}, 1), make(chan struct{}), make(chan struct{}),
			make(chan struct{})
		go c.writeReplies(o.ControlPending())
	}
	return c
}

// Expires implements engine.Expirer.
func (c *conn) Expires() time.Time { return c.expires }

// writeReplies writes the tunnel's pending replies, until Close.
func (c *conn) writeReplies(pending <-chan struct{}) {
	defer close(c.repliesEnded)
	for {
		select {
		case <-pending:
			if _, err := c.Write(nil); err != nil {
				// without the method Timeout, which a session would take for its own read deadline
				c.replyErr = errors.New("a reply of the tunnel was not written: " + err.Error())
				defer c.Cut() // ends the session's read too
				return
			}
		case <-c.closed:
			return
		}
	}
}

// Read returns why the replies could not be written, if that ended the connection.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.mayWantTLS.Load() {
		c.mayWantTLS.Store(false)
	}
	if err != nil && c.repliesEnded != nil {
		select {
		case <-c.repliesEnded:
			if c.replyErr != nil {
				err = c.replyErr
			}
		default:
		}
	}
	return n, err
}

// Write writes all of p. It waits for writeReplies; else there is one writer.
func (c *conn) Write(p []byte) (int, error) {
	if c.writing != nil {
		select {
		case c.writing <- struct{}{}:
			defer func() { <-c.writing }()
		case <-c.writesEnded:
			return 0, net.ErrClosed
		}
	}
	return dialer.Write(c.Conn, c.socket, p)
}

// Progress implements transport.Progressor with the progress of the socket.
func (c *conn) Progress() (at time.Time, waits bool) { return dialer.Progress(c.socket) }

// Fast implements engine.Faster.
func (c *conn) Fast() bool { return dialer.Fast(c.Conn, c.socket) }

// Close runs the close handshakes of tunnel and TLS, for closeTime at most, and waits for the
// goroutine writeReplies. TLS alone would wait 5 s.
func (c *conn) Close() error {
	if c.Conn == c.socket {
		return c.socket.Close()
	}
	cut := make(chan struct{})
	t := time.AfterFunc(closeTime, func() {
		_ = c.socket.Close()
		close(cut)
	})
	if c.writing != nil {
		close(c.closed)
		<-c.repliesEnded
		c.writing <- struct{}{} // never given back; the timer unblocks a stuck writer
		close(c.writesEnded)
	}
	err := c.Conn.Close()
	if !t.Stop() {
		<-cut
	}
	_ = c.socket.Close()
	return err
}

// Cut closes the socket at once, without close handshakes. Close must still be called. Package paho
// calls it.
func (c *conn) Cut() { _ = c.socket.Close() }

// SetReadDeadline sets the deadline of the socket.
func (c *conn) SetReadDeadline(t time.Time) error { return c.socket.SetReadDeadline(t) }

// Explain maps the error of a failed handshake, such as a TLS alert in place of a CONNACK. A peer
// that hangs up on a connection without TLS, before it has sent anything, may expect TLS.
func (c *conn) Explain(err error) error {
	if mqttwire.IsPeers(err) {
		return err
	}
	e := protocol.Error(err)
	if c.mayWantTLS.Load() && e.Kind == transport.Network {
		e.Err = &tlsMissingError{e.Err}
	}
	return e
}

// tlsMissingError adds a hint at TLS to the text of a cause.
type tlsMissingError struct{ cause error }

func (e *tlsMissingError) Error() string {
	return e.cause.Error() + "; if this port expects TLS, use mqtts:// or leave netopt.Options.Plaintext unset"
}

func (e *tlsMissingError) Unwrap() error { return e.cause }
