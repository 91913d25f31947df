package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"

	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/internal/hubstatus"
	"github.com/hubline-iot/hubline/transport"
)

// hubConn is one connection to the hub.
type hubConn struct {
	conn   *http.ClientConn
	guard  *httpguard.Conn // the reader below conn; nil over HTTP/2
	socket *socket
	gone   chan struct{} // closed when the connection takes no more requests
	once   sync.Once
}

const (
	// recordSize is the payload of one TLS record, and so of one network write.
	recordSize = 16 << 10
	// smallBody is the largest body that is copied to share the header's TLS record.
	smallBody = 4 << 10
	// maxHeader bounds the header of an answer, including a cloud-to-device message's properties.
	maxHeader = 128 << 10
	// maxBody bounds the body of an answer; a cloud-to-device message has at most 64 KB.
	maxBody = 256 << 10
	// maxRefusal bounds the body that is read of an unsuccessful answer. A longer body is cut, and the
	// answer still counts.
	maxRefusal = 64 << 10
)

// connect dials, does TLS and returns the connection, all within Options.silence. The error is a
// cause for dialer.Protocol. On error no connection stays open.
func (o *Options) connect(ctx context.Context, creds *transport.Credentials) (*hubConn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.silence())
	defer cancel()
	d := o.dialer()
	cert, err := d.ClientCertificate(ctx, creds)
	if err != nil {
		return nil, err
	}
	outer, under, err := d.Dial(ctx, creds, cert)
	if err != nil {
		return nil, err
	}
	l := &hubConn{socket: under.(*socket), gone: make(chan struct{})}
	if secure, ok := outer.(*tls.Conn); !ok || secure.ConnectionState().NegotiatedProtocol != "h2" {
		l.guard = httpguard.New(outer, maxHeader)
		outer = l.guard
	}
	opened := func(context.Context, string, string) (net.Conn, error) { return outer, nil }
	stack := &http.Transport{
		DialContext: opened, DialTLSContext: opened, Protocols: new(http.Protocols),
		DisableCompression: true, MaxResponseHeaderBytes: maxHeader, WriteBufferSize: recordSize,
	}
	stack.Protocols.SetHTTP1(true)
	stack.Protocols.SetHTTP2(o.HTTP2 && !o.Network.Plaintext)
	l.conn, err = stack.NewClientConn(ctx, d.Scheme(), net.JoinHostPort(creds.DialHost(), protocol.Secure))
	if err != nil {
		l.socket.closeAndWait()
		return nil, err
	}
	l.conn.SetStateHook(func(c *http.ClientConn) {
		if c.Err() != nil {
			l.markGone()
		}
	})
	return l, nil
}

// markGone marks the connection as unusable for further requests.
func (l *hubConn) markGone() { l.once.Do(func() { close(l.gone) }) }

// close closes the connection in good order, or hard if abort closes the socket meanwhile. It then
// waits until no goroutine uses the socket.
func (l *hubConn) close() {
	l.socket.markClosing()
	_ = l.conn.Close()
	l.socket.closeAndWait()
}

// request is the request of an exchange. The exchange consumes its header.
type request struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte // the caller may reuse it after the exchange
}

// answer is the answer of an exchange.
type answer struct {
	status int
	header http.Header
	body   []byte
	tls    *tls.ConnectionState // nil without TLS
}

// exchange makes one request. It does not follow redirections. The error is a cause for
// dialer.Protocol; after an error the connection is unusable.
func (l *hubConn) exchange(ctx context.Context, r *request) (*answer, error) {
	q := (&http.Request{
		Method: r.method, URL: r.url, Host: r.url.Host, Header: r.header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(r.body)), Body: http.NoBody,
	}).WithContext(ctx)
	switch n := len(r.body); {
	case n == 0:
	case n <= smallBody: // net/http sends a body of this type together with the header, in one record
		q.Body = io.NopCloser(bytes.NewReader(bytes.Clone(r.body)))
	default:
		p := &payload{data: r.body}
		defer p.revoke()
		q.Body = p
	}
	if l.guard != nil {
		l.guard.Next()
	}
	response, err := l.conn.RoundTrip(q)
	if err != nil {
		return nil, l.explain(ctx, err)
	}
	defer response.Body.Close()
	limit := int64(maxBody + 1)
	if !hubstatus.IsFine(response.StatusCode) {
		limit = maxRefusal
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, limit))
	if response.Close || int64(len(body)) == limit || l.conn.Available() == 0 {
		// net/http is about to close the connection, also because its writing goroutine did not run for
		// 50 ms; without this call a quick next request would still use it, and its answer be lost
		l.markGone()
	}
	peer := response.TLS
	if l.guard != nil {
		peer = l.guard.TLS()
		if l.guard.Err() != nil {
			l.markGone()
		}
	}
	switch {
	case err != nil:
		return nil, l.explain(ctx, err)
	case len(body) > maxBody:
		return nil, errLongBody
	}
	return &answer{response.StatusCode, response.Header, body, peer}, nil
}

var errLongBody = errors.New("the hub's answer has more than 256 KB")

// explain returns the underlying cause of an error of net/http.
func (l *hubConn) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if cause := l.socket.loss(); cause != nil && cause != io.EOF {
		return cause
	}
	return err
}

// payload is the body of a request. net/http may read it after the exchange has ended. After revoke
// it reads nothing, so the owner may reuse the memory.
type payload struct {
	mu      sync.Mutex // held during each copy
	data    []byte
	revoked bool
}

var errRevoked = errors.New("the exchange is over")

func (p *payload) Read(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.revoked:
		return 0, errRevoked
	case len(p.data) == 0:
		return 0, io.EOF
	}
	n := copy(b, p.data)
	p.data = p.data[n:]
	return n, nil
}

func (p *payload) Close() error { return nil }

func (p *payload) revoke() {
	p.mu.Lock()
	p.data, p.revoked = nil, true
	p.mu.Unlock()
}
