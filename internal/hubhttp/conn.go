package hubhttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/transport"
)

// Conn is one connection to the hub. It makes one exchange at a time. Only Abort, Gone and Heard
// may be called during an exchange.
type Conn struct {
	conn   *http.ClientConn
	guard  *httpguard.Conn // the reader below conn; nil over HTTP/2
	writes *writes         // what net/http writes to; nil over HTTP/2
	socket *socket
	gone   chan struct{} // closed when the connection takes no more requests

	answered bool // an exchange succeeded
	once     sync.Once
}

const http2 = "h2" // in ALPN

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

// Dial connects, does TLS and returns the connection. It speaks HTTP/2 only if d offers that. It
// consumes d. The error is a cause for Protocol.Error. On error no connection stays open.
func Dial(ctx context.Context, d *dialer.Dialer, creds *transport.Credentials) (*Conn, error) {
	cert, err := d.ClientCertificate(ctx, creds)
	if err != nil {
		return nil, err
	}
	wrap := d.Wrap
	d.Wrap = func(c net.Conn) net.Conn {
		if wrap != nil {
			c = wrap(c)
		}
		return newSocket(c)
	}
	outer, under, err := d.Dial(ctx, creds, cert)
	if err != nil {
		return nil, err
	}
	l := &Conn{socket: under.(*socket), gone: make(chan struct{})}
	if secure, ok := outer.(*tls.Conn); !ok || secure.ConnectionState().NegotiatedProtocol != http2 {
		l.guard = httpguard.New(outer, maxHeader)
		l.writes = &writes{Conn: l.guard}
		outer = l.writes
	}
	opened := func(context.Context, string, string) (net.Conn, error) { return outer, nil }
	stack := &http.Transport{
		DialContext: opened, DialTLSContext: opened, Protocols: new(http.Protocols),
		DisableCompression: true, MaxResponseHeaderBytes: maxHeader, WriteBufferSize: recordSize,
	}
	stack.Protocols.SetHTTP1(true)
	stack.Protocols.SetHTTP2(slices.Contains(d.ALPN, http2) && !d.Network.Plaintext)
	l.conn, err = stack.NewClientConn(ctx, d.Scheme(), net.JoinHostPort(creds.DialHost(), Protocol.Secure))
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
func (l *Conn) markGone() { l.once.Do(func() { close(l.gone) }) }

// Close closes the connection in good order, or hard if Abort closes the socket meanwhile. It then
// waits until no goroutine uses the socket.
func (l *Conn) Close() {
	l.socket.markClosing()
	_ = l.conn.Close()
	l.socket.closeAndWait()
}

// Gone is closed when the connection takes no more requests.
func (l *Conn) Gone() <-chan struct{} { return l.gone }

// Loss returns how the connection was lost: io.EOF if the hub closed it cleanly, nil if it was not
// lost or TLS sent close_notify.
func (l *Conn) Loss() error { return l.socket.loss() }

// Abort closes the socket, even during an exchange. Any goroutine may call it.
func (l *Conn) Abort() { _ = l.socket.Close() }

// Heard returns when the latest byte came from the hub. It counts the bytes below TLS, which passes
// nothing on before a record of up to 16 KB is whole. Over HTTP/2, which has frames that belong to
// no answer, it is always zero.
func (l *Conn) Heard() time.Time {
	if l.writes == nil {
		return time.Time{}
	}
	l.socket.mu.Lock()
	defer l.socket.mu.Unlock()
	return l.socket.heard
}

// Sent reports whether anything of the latest exchange may have been sent. After a failed exchange
// it is final once Close has returned. Over HTTP/2 it is always true.
func (l *Conn) Sent() bool { return l.writes == nil || l.writes.begun.Load() }

// Stale reports whether the latest exchange failed as it does when the hub closes an idle
// connection just as the request goes (RFC 9112 section 9.5): the connection carried an answer
// before, and was closed in good order without a byte of another one. The hub may have executed the
// request all the same. Over HTTP/2 it is always false.
func (l *Conn) Stale() bool {
	if l.writes == nil || !l.answered || l.writes.heard.Load() {
		return false
	}
	loss := l.socket.loss()
	return loss == nil || errors.Is(loss, io.EOF) || errors.Is(loss, syscall.EPIPE) // a write after the close
}

// writes is a connection that knows whether a write has begun, and whether a byte came since.
type writes struct {
	net.Conn
	begun, heard atomic.Bool
}

func (w *writes) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.heard.Store(true)
	}
	return n, err
}

func (w *writes) Write(b []byte) (int, error) {
	w.begun.Store(true)
	return w.Conn.Write(b)
}

// Request is the request of an exchange. The exchange consumes its header.
type Request struct {
	Method string
	URL    *url.URL
	Header http.Header
	Body   []byte // the caller may reuse it after the exchange
	// OnHead is called with the answer before its body is read. Nil: not called.
	OnHead func(*Answer)
}

// Answer is the answer of an exchange.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	TLS    *tls.ConnectionState // nil without TLS
}

// Exchange makes one request. It does not follow redirections. The error is a cause for
// Protocol.Error; after an error the connection is unusable. Only ErrLong comes with an answer.
func (l *Conn) Exchange(ctx context.Context, r *Request) (*Answer, error) {
	q := (&http.Request{
		Method: r.Method, URL: r.URL, Host: r.URL.Host, Header: r.Header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(r.Body)), Body: http.NoBody,
	}).WithContext(ctx)
	switch n := len(r.Body); {
	case n == 0:
	case n <= smallBody: // net/http sends a body of this type together with the header, in one record
		q.Body = io.NopCloser(bytes.NewReader(bytes.Clone(r.Body)))
	default:
		p := &payload{data: r.Body}
		defer p.revoke()
		q.Body = p
	}
	if l.guard != nil {
		l.guard.Next()
		l.writes.begun.Store(false)
		l.writes.heard.Store(false)
	}
	response, err := l.conn.RoundTrip(q)
	if err != nil {
		return nil, l.explain(ctx, err)
	}
	defer response.Body.Close()
	if r.OnHead != nil {
		r.OnHead(&Answer{Status: response.StatusCode, Header: response.Header})
	}
	limit := int64(maxBody + 1)
	if response.StatusCode/100 != 2 {
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
		return &Answer{response.StatusCode, response.Header, nil, peer}, ErrLong
	}
	l.answered = true
	return &Answer{response.StatusCode, response.Header, body, peer}, nil
}

// ErrLong is the error of an exchange whose answer is too large. The answer comes with it, without
// its body.
var ErrLong = errors.New("the hub's answer has more than 256 KB")

// explain returns the underlying cause of an error of net/http.
func (l *Conn) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	cause := l.socket.loss()
	ours := errors.Is(err, net.ErrClosed) // net/http closes the connection at the hub's end of it
	if cause != nil && (ours || !errors.Is(cause, io.EOF)) {
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
