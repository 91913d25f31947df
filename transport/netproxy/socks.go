package netproxy

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"

	xproxy "golang.org/x/net/proxy"

	"github.com/hubline-iot/hubline/transport"
)

// socks returns the DialFunc of a SOCKS5 proxy.
func (p *proxy) socks(auth bool, user, password string) (DialFunc, error) {
	var a *xproxy.Auth
	if auth {
		a = &xproxy.Auth{User: user, Password: password}
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialer := &proxyDialer{dial: p.dial}
		d, err := xproxy.SOCKS5("tcp", p.addr, a, dialer)
		if err != nil {
			return nil, p.failed(transport.Invalid, err)
		}
		if _, err = d.(xproxy.ContextDialer).DialContext(ctx, network, addr); err == nil {
			return dialer.conn, nil // the library's type would hide the socket, and adds nothing to the bytes
		}
		return nil, p.socksError(ctx, dialer.failure(), err)
	}, nil
}

// socksError converts an error of x/net/proxy. networkErr is the network failure, nil if there was
// none.
func (p *proxy) socksError(ctx context.Context, networkErr, err error) error {
	switch {
	case ctx.Err() != nil:
		return p.viaProxy(context.Cause(ctx))
	case networkErr != nil:
		return p.viaProxy(networkErr)
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Err != nil {
		err = e.Err // without addresses: ours has them
	}
	for _, row := range replyTable {
		if strings.HasSuffix(err.Error(), row.text) {
			return p.failed(row.kind, &ReplyError{row.text})
		}
	}
	if strings.Contains(err.Error(), "unknown code: ") {
		return p.failed(transport.Unknown, &ReplyError{"a refusal for no reason that SOCKS5 knows"})
	}
	return p.failed(transport.Protocol, &hintError{err})
}

// replyTable maps the refusals of a SOCKS5 proxy. The library reports them as texts without codes.
var replyTable = []struct {
	text string
	kind transport.Kind
}{
	{"general SOCKS server failure", transport.Unavailable},
	{"connection not allowed by ruleset", transport.Forbidden},
	{"network unreachable", transport.Network},
	{"host unreachable", transport.Network},
	{"connection refused", transport.Network},
	{"TTL expired", transport.Network},
	{"command not supported", transport.Unsupported},
	{"address type not supported", transport.Unsupported},
	{"no acceptable authentication methods", transport.Unauthorized},
	{"username/password authentication failed", transport.Unauthorized},
}

// ReplyError is a SOCKS5 proxy's refusal to connect, reachable with errors.As.
type ReplyError struct {
	// Reason is the refusal in words.
	Reason string
}

// Error returns the reason.
func (e *ReplyError) Error() string { return "SOCKS5: " + e.Reason }

type hintError struct{ err error }

func (e *hintError) Error() string {
	return "SOCKS5: " + e.err.Error() + "; check host and port of the proxy"
}
func (e *hintError) Unwrap() error { return e.err }

// proxyDialer dials the proxy for one connection. It keeps the first network failure, to
// distinguish it from a refusal by the proxy.
type proxyDialer struct {
	dial DialFunc
	conn net.Conn // to the proxy

	mu  sync.Mutex // guards memory only
	err error
}

// Dial is not called.
func (w *proxyDialer) Dial(network, addr string) (net.Conn, error) {
	return w.DialContext(context.Background(), network, addr)
}

func (w *proxyDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := w.dial(ctx, network, addr)
	if err != nil {
		return nil, w.keep(err)
	}
	w.conn = c
	return &proxyConn{c, w}, nil
}

func (w *proxyDialer) keep(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	return err
}

func (w *proxyDialer) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

type proxyConn struct {
	net.Conn
	way *proxyDialer
}

func (c *proxyConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.way.keep(err)
	}
	return n, err
}

func (c *proxyConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.way.keep(err)
	}
	return n, err
}
