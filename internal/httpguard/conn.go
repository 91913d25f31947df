package httpguard

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
)

var (
	// ErrUnsolicited ends a connection whose peer sent bytes without an outstanding request.
	ErrUnsolicited = errors.New("the peer sent unsolicited bytes")
	// ErrMalformed ends a connection whose peer sent a chunk or a trailer that is not HTTP/1.1.
	ErrMalformed = errors.New("the peer's answer has a malformed chunk or trailer")
	// ErrUpgraded ends a connection whose peer answered with 101 Switching Protocols, which nobody
	// asked for. net/http would hand the connection over, and stop to heed the context of the
	// request.
	ErrUpgraded = errors.New("the peer switches to another protocol (101) unasked")
	// ErrLongHead ends a connection whose peer sent a longer head than New allows.
	ErrLongHead = errors.New("the head of the peer's answer is too long")
)

// Conn is a connection whose Read returns only the bytes of answers. If a byte arrives that belongs
// to no answer, that Read or the next one fails, and so does every later Read and Write.
//
// The caller announces each request with Next. One goroutine may read while another one writes.
// Read copies the heads of answers, but not their bodies.
type Conn struct {
	net.Conn
	tls *tls.ConnectionState

	mu    sync.Mutex // not held during reads and writes of Conn
	next  bool       // the next Write begins a request
	frame frame
	err   error // set once the connection is unusable
}

// New returns a Conn over c, which carries HTTP/1. limit is the maximum size of the head of an
// answer. It must be at least http.Transport.MaxResponseHeaderBytes, so that net/http detects a
// long head first.
func New(c net.Conn, limit int) *Conn {
	own := &Conn{Conn: c, frame: frame{limit: limit}}
	if secure, ok := c.(*tls.Conn); ok {
		state := secure.ConnectionState()
		own.tls = &state
	}
	return own
}

// TLS returns the state of the TLS connection below, nil without TLS. net/http does not recognize
// that connection, so http.Response.TLS is nil.
func (c *Conn) TLS() *tls.ConnectionState { return c.tls }

// Next announces that the next Write begins a request. The previous request must have been written
// whole and answered.
//
// A Write alone does not mark a request: after an early answer, such as 413, net/http may still
// write the rest of the old one.
func (c *Conn) Next() {
	c.mu.Lock()
	c.next = true
	c.mu.Unlock()
}

// Err returns the reason why the connection is unusable, nil if it is usable.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Write sends p. The first Write after Next also starts a new answer.
func (c *Conn) Write(p []byte) (int, error) {
	if err := c.begin(p); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *Conn) begin(p []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil && c.next {
		c.next = false
		c.frame.begin(bytes.HasPrefix(p, []byte("HEAD ")))
	}
	return c.err
}

// Read returns the next bytes of the expected answer. If extra bytes follow it, Read returns io.EOF
// with the last bytes of the answer, and ErrUnsolicited after that.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.Err(); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	if n == 0 {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	own, refused := c.frame.take(p[:n])
	if refused == nil {
		return n, err
	}
	clear(p[own:n])
	c.err = refused
	if own > 0 && errors.Is(refused, ErrUnsolicited) {
		return own, io.EOF // so net/http does not offer the connection to another request
	}
	return own, refused
}
