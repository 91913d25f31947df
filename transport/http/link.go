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
	"time"

	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/internal/hubstatus"
	"github.com/hubline-iot/hubline/transport"
)

// link is one connection to the hub.
type link struct {
	conn   *http.ClientConn
	guard  *httpguard.Conn // the reader below conn; nil over HTTP/2
	socket *socket
	gone   chan struct{} // closed when the link takes no more requests
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
func (o *Options) connect(ctx context.Context, creds *transport.Credentials) (*link, error) {
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
	l := &link{socket: under.(*socket), gone: make(chan struct{})}
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
		l.socket.hangUp()
		return nil, err
	}
	l.conn.SetStateHook(func(c *http.ClientConn) {
		if c.Err() != nil {
			l.over()
		}
	})
	return l, nil
}

// over marks the link as unusable for further requests.
func (l *link) over() { l.once.Do(func() { close(l.gone) }) }

// close closes the connection in good order, or hard if cut closes the socket meanwhile. It then
// waits until no goroutine uses the socket.
func (l *link) close() {
	l.socket.ours()
	_ = l.conn.Close()
	l.socket.hangUp()
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
// dialer.Protocol; after an error the link is unusable.
func (l *link) exchange(ctx context.Context, r *request) (*answer, error) {
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
	most := int64(maxBody + 1)
	if !hubstatus.IsFine(response.StatusCode) {
		most = maxRefusal
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, most))
	if response.Close || int64(len(body)) == most {
		// net/http is about to close the connection; without this call a quick next request would still
		// use it
		l.over()
	}
	peer := response.TLS
	if l.guard != nil {
		peer = l.guard.TLS()
		if l.guard.Err() != nil {
			l.over()
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

var errLongBody = errors.New("the hub's answer is longer than any that it has to give")

// explain returns the underlying cause of an error of net/http.
func (l *link) explain(ctx context.Context, err error) error {
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

// socket is the connection below TLS. It records how the hub ended it, and counts the goroutines
// inside its methods. net/http has two goroutines per connection, which cannot be joined. After the
// count has reached zero on a closed socket, they no longer touch our memory.
type socket struct {
	net.Conn
	mu     sync.Mutex
	inside int
	closed bool
	left   chan struct{} // closed when the socket is closed and no goroutine is inside
	ending bool          // we are closing: later errors are not the peer's
	err    error         // the first error that we did not cause
}

func newSocket(c net.Conn) *socket { return &socket{Conn: c, left: make(chan struct{})} }

func (s *socket) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.inside++
	return true
}

func (s *socket) leave(err error) {
	s.mu.Lock()
	if err != nil && s.err == nil && !s.closed && !s.ending {
		s.err = err
	}
	s.inside--
	last := s.closed && s.inside == 0
	s.mu.Unlock()
	if last {
		close(s.left)
	}
}

func (s *socket) Read(b []byte) (int, error) {
	if !s.enter() {
		return 0, net.ErrClosed
	}
	n, err := s.Conn.Read(b)
	s.leave(err)
	return n, err
}

func (s *socket) Write(b []byte) (int, error) {
	if !s.enter() {
		return 0, net.ErrClosed
	}
	n, err := s.Conn.Write(b)
	s.leave(err)
	return n, err
}

// Close closes the socket; goroutines inside get an error.
func (s *socket) Close() error {
	s.mu.Lock()
	was, empty := s.closed, s.inside == 0
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	err := s.Conn.Close()
	if empty {
		close(s.left)
	}
	return err
}

// hangUp is Close that waits until no goroutine is inside.
func (s *socket) hangUp() {
	_ = s.Close()
	<-s.left
}

// ours marks later errors as a consequence of our own close.
func (s *socket) ours() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
}

// loss returns how the connection was lost: io.EOF if the hub closed it cleanly, nil if it was not
// lost or TLS sent close_notify.
func (s *socket) loss() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// lane makes one request at a time, over a connection that it opens when a request needs it. One
// goroutine uses it.
type lane struct {
	s     *session
	mu    sync.Mutex // guards link against cut
	link  *link
	watch watch

	// idle fires after the connection was unused for IdleTimeout; nil before the first exchange.
	idle *time.Timer
}

func newLane(s *session) lane { return lane{s: s, watch: watch{s: s}} }

// open returns the link, and opens one if necessary.
func (l *lane) open(ctx context.Context) (*link, error) {
	if l.link != nil {
		select {
		case <-l.link.gone:
			if err := l.retire(); err != nil {
				return nil, err
			}
		default:
			return l.link, nil
		}
	}
	fresh, err := l.s.opt.connect(ctx, l.s.cfg.Creds)
	if err != nil {
		return nil, err
	}
	l.set(fresh)
	return fresh, nil
}

func (l *lane) set(fresh *link) {
	l.mu.Lock()
	l.link = fresh
	l.mu.Unlock()
}

// gone returns a channel that is closed when the hub has closed the connection.
func (l *lane) gone() <-chan struct{} {
	if l.link == nil {
		return nil
	}
	return l.link.gone
}

// unused returns a channel that fires when the connection was idle for IdleTimeout.
func (l *lane) unused() <-chan time.Time {
	if l.link == nil || l.idle == nil {
		return nil
	}
	return l.idle.C
}

// limit returns the time limit of a request with a body of this size. Large bodies get more time,
// because a slow link is not a dead one.
func (o *Options) limit(size int) time.Duration {
	return o.Timeout + time.Duration(size/(4<<10))*time.Second
}

// exchange makes one request within its time limit.
func (l *lane) exchange(ctx context.Context, r *request) (*answer, error) {
	limit := l.s.opt.limit(len(r.body))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if l.idle != nil {
		l.idle.Stop()
	}
	link, err := l.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	sent := time.Now()
	l.watch.begin(ctx, cancel, limit-l.s.opt.Timeout)
	a, err := link.exchange(ctx, r)
	if dead := l.watch.end(); dead && err != nil {
		err = errDead
	}
	if err != nil {
		l.hangUp()
		return nil, err
	}
	l.s.clock.Learn(a.header, a.tls, sent, time.Now())
	if l.idle == nil {
		l.idle = time.NewTimer(l.s.opt.IdleTimeout)
	} else {
		l.idle.Reset(l.s.opt.IdleTimeout)
	}
	return a, nil
}

// retire discards a closed connection. It returns the reason, or nil if the hub closed it cleanly.
func (l *lane) retire() error {
	err := l.link.socket.loss()
	l.hangUp()
	if err == io.EOF {
		return nil
	}
	return err
}

// hangUp closes the connection and waits until no goroutine uses its socket.
func (l *lane) hangUp() {
	if l.link == nil {
		return
	}
	l.link.close()
	l.set(nil)
}

// cut closes the socket, even while it is in use. Any goroutine may call it.
func (l *lane) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.link != nil {
		_ = l.link.socket.Close()
	}
}
