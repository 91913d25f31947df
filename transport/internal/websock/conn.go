package websock

import (
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// lower is the connection below WebSocket as the library is given it. It keeps failures as they
// were, for the library changes them; it bounds the answer to the request; it is not closed and has
// no deadlines, for both are the business of its transport.
type lower struct {
	net.Conn
	room int // bytes that the answer may still have; negative: it is over

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

// failures are the first ones, nil where there is none.
func (l *lower) failures() (read, write error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readErr, l.writeErr
}

func (*lower) Close() error                     { return nil }
func (*lower) SetDeadline(time.Time) error      { return nil }
func (*lower) SetReadDeadline(time.Time) error  { return nil }
func (*lower) SetWriteDeadline(time.Time) error { return nil }

// conn is the stream of bytes in the binary messages of a WebSocket.
type conn struct {
	net.Conn // below WebSocket
	below    *lower
	ws       *websocket.Conn
	message  io.Reader     // of the reading goroutine, nil between messages
	pongs    chan struct{} // capacity 1: pong is set

	mu   sync.Mutex // guards memory only
	pong []byte     // nil: none
}

// Read returns what is left of the message or begins the next one.
func (c *conn) Read(p []byte) (int, error) {
	for {
		if c.message == nil {
			kind, message, err := c.ws.NextReader()
			switch {
			case err != nil:
				return 0, c.explain(err)
			case kind != websocket.BinaryMessage:
				return 0, failed(transport.Protocol, errors.New("the hub sent text over WebSocket"))
			}
			c.message = message
		}
		n, err := c.message.Read(p)
		switch {
		case err == io.EOF:
			c.message, err = nil, nil
		case err != nil:
			err = c.explain(err)
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// explain makes of the library's error what the transports understand.
func (c *conn) explain(err error) error {
	if closed, ok := errors.AsType[*websocket.CloseError](err); ok && closed.Code != websocket.CloseAbnormalClosure {
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
		if err := c.ws.WriteControl(websocket.PongMessage, pong, time.Time{}); err != nil {
			return 0, c.writeError(err)
		}
	}
	sent := 0
	for sent < len(p) {
		n := min(len(p)-sent, frameSize)
		if err := c.ws.WriteMessage(websocket.BinaryMessage, p[sent:sent+n]); err != nil {
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

// ControlPending implements netopt.ControlWriter: pongs are waiting.
func (c *conn) ControlPending() <-chan struct{} { return c.pongs }

// pinged is called within Read. Of several pings the last one is answered, as the protocol allows.
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

// Close says goodbye, does not wait for the answer, and closes what is below.
func (c *conn) Close() error {
	_ = c.ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
		time.Time{})
	return c.Conn.Close()
}

// closedError is a close frame of the peer.
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
