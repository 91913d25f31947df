package websocket

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	gorilla "github.com/gorilla/websocket"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// lower is the connection below WebSocket, as gorilla/websocket sees it. It records failures,
// because the library changes them, and bounds the size of the handshake answer. Close and
// deadlines have no effect: the transport controls both.
type lower struct {
	net.Conn
	room int // remaining bytes of the handshake answer; negative: no bound

	mu                sync.Mutex // guards memory only
	readErr, writeErr error      // the first ones
}

func (l *lower) Read(p []byte) (int, error) {
	if l.room == 0 {
		return 0, errors.New("the answer is too long")
	}
	if l.room > 0 {
		p = p[:min(len(p), l.room)]
	}
	n, err := l.Conn.Read(p)
	if l.room > 0 {
		l.room -= n
	}
	l.keep(&l.readErr, err)
	return n, err
}

func (l *lower) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	l.keep(&l.writeErr, err)
	return n, err
}

func (l *lower) keep(first *error, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *first == nil {
		*first = err
	}
}

// failures returns the first failures, nil for none.
func (l *lower) failures() (read, write error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readErr, l.writeErr
}

func (*lower) Close() error                     { return nil }
func (*lower) SetDeadline(time.Time) error      { return nil }
func (*lower) SetReadDeadline(time.Time) error  { return nil }
func (*lower) SetWriteDeadline(time.Time) error { return nil }

// conn is the byte stream in the binary messages of a WebSocket.
type conn struct {
	net.Conn // below WebSocket
	below    *lower
	ws       *gorilla.Conn
	message  io.Reader     // used by the reading goroutine; nil between messages
	pongs    chan struct{} // capacity 1: pong is set

	mu   sync.Mutex // guards memory only
	pong []byte     // nil: none
}

// Read returns the rest of the current message, or begins the next one.
func (c *conn) Read(p []byte) (int, error) {
	for {
		if c.message == nil {
			kind, message, err := c.ws.NextReader()
			switch {
			case err != nil:
				return 0, c.explain(err)
			case kind != gorilla.BinaryMessage:
				return 0, failed(transport.Protocol, errors.New("the hub sent text over WebSocket"))
			}
			c.message = message
		}
		n, err := c.message.Read(p)
		switch {
		case err == io.EOF: //nolint:errorlint // the end of the message, as of any Reader
			c.message, err = nil, nil
		case err != nil:
			err = c.explain(err)
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// explain converts an error of the library to one that transports understand.
func (c *conn) explain(err error) error {
	if closed, ok := errors.AsType[*gorilla.CloseError](err); ok && closed.Code != gorilla.CloseAbnormalClosure {
		return &closedError{closed.Code, scrub.Peer(closed.Text)}
	}
	if below, _ := c.below.failures(); below != nil {
		return below
	}
	return failed(transport.Protocol, err)
}

// Write sends the pending pong, if any, and p, in messages of at most frameSize.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	pong := c.pong
	c.pong = nil
	c.mu.Unlock()
	if pong != nil {
		if err := c.ws.WriteControl(gorilla.PongMessage, pong, time.Time{}); err != nil {
			return 0, c.writeError(err)
		}
	}
	sent := 0
	for sent < len(p) {
		n := min(len(p)-sent, frameSize)
		if err := c.ws.WriteMessage(gorilla.BinaryMessage, p[sent:sent+n]); err != nil {
			return sent, c.writeError(err)
		}
		sent += n
	}
	return sent, nil
}

func (c *conn) writeError(err error) error {
	if _, below := c.below.failures(); below != nil {
		return below
	}
	return err
}

// ControlPending implements netopt.ControlWriter. The channel signals waiting pongs.
func (c *conn) ControlPending() <-chan struct{} { return c.pongs }

// pinged is called within Read. Only the last of several pings is answered, as the protocol allows.
func (c *conn) pinged(data string) error {
	c.mu.Lock()
	c.pong = append(make([]byte, 0, len(data)), data...)
	c.mu.Unlock()
	select {
	case c.pongs <- struct{}{}:
	default:
	}
	return nil
}

// Close sends a close frame, does not wait for the answer, and closes the connection below.
func (c *conn) Close() error {
	_ = c.ws.WriteControl(gorilla.CloseMessage, gorilla.FormatCloseMessage(gorilla.CloseNormalClosure, ""),
		time.Time{})
	return c.Conn.Close()
}

// closedError is the error for a close frame of the peer.
type closedError struct {
	code int
	text string
}

func (e *closedError) Error() string {
	text := "the hub closed the WebSocket with code " + strconv.Itoa(e.code)
	if e.text != "" {
		text += ": \"" + e.text + "\""
	}
	return text
}

func (e *closedError) Unwrap() error { return io.EOF }
