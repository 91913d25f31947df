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
	guard  *httpguard.Conn // what conn reads from; nil over HTTP/2
	socket *socket
	gone   chan struct{} // closed when no request can be made any more
	once   sync.Once
}

const (
	// recordSize is what one record of TLS carries, and so what goes to the network in one call.
	recordSize = 16 << 10
	// smallBody is the largest body that is rather copied than sent in a record of its own.
	smallBody = 4 << 10
	// maxHeader bounds the header of an answer, a cloud-to-device message's properties included.
	maxHeader = 128 << 10
	// maxBody bounds the body of an answer: a cloud-to-device message has 64 KB at most.
	maxBody = 256 << 10
	// maxRefusal is how much is read of the body of an answer that is no success, which counts without
	// it, too.
	maxRefusal = 64 << 10
)

// connect dials, does TLS, and returns the connection, all within Options.silence. The error is a
// cause for dialer.Protocol; on error nothing is left.
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

// over says that no request can be made any more.
func (l *link) over() { l.once.Do(func() { close(l.gone) }) }

// close says goodbye, which takes no longer than it takes somebody to hang the socket up, and joins
// what uses the socket.
func (l *link) close() {
	l.socket.ours()
	_ = l.conn.Close()
	l.socket.hangUp()
}

// request is what an exchange begins with. Its header is used up.
type request struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte // the caller's again when the exchange is over
}

// answer is what it ends with.
type answer struct {
	status int
	header http.Header
	body   []byte
	tls    *tls.ConnectionState // nil without TLS
}

// exchange makes one request. Redirections are not followed. The error is a cause for
// dialer.Protocol; after one the link is of no use any more.
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
		// net/http is about to find out that the connection is over; who is quick would still be let in
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

// explain makes of net/http's error what really happened.
func (l *link) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if cause := l.socket.loss(); cause != nil && cause != io.EOF {
		return cause
	}
	return err
}

// payload is the body of a request. net/http may read it after the exchange has ended; from revoke
// on it finds nothing, so the memory is its owner's again.
type payload struct {
	mu      sync.Mutex // held to copy
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

// socket is the connection below TLS. It knows how the hub ended it, and who is inside: net/http
// has two goroutines for each connection, which cannot be joined, but once none of them is in here,
// or comes in any more, nothing of theirs touches what is ours.
type socket struct {
	net.Conn
	mu     sync.Mutex
	inside int
	closed bool
	left   chan struct{} // closed when the last one left a closed socket
	ending bool          // what happens now is our doing
	err    error         // the first failure that is not
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

// Close closes the socket; who is inside comes out with an error.
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

// hangUp is Close that waits until nobody is inside.
func (s *socket) hangUp() {
	_ = s.Close()
	<-s.left
}

// ours says that what follows is our doing.
func (s *socket) ours() {
	s.mu.Lock()
	s.ending = true
	s.mu.Unlock()
}

// loss is how the connection was lost: io.EOF when the hub closed it in good order, nil when it was
// not lost or TLS said goodbye.
func (s *socket) loss() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// lane makes one request after the other, over a connection that is opened when there is something
// to ask and none is open. It is used by one goroutine.
type lane struct {
	s     *session
	mu    sync.Mutex // guards link for those who hang up
	link  *link
	watch watch

	// idle fires when the connection was not used for IdleTimeout; nil before the first exchange.
	idle *time.Timer
}

func newLane(s *session) lane { return lane{s: s, watch: watch{s: s}} }

// open is the link, which is made if need be.
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

// gone is closed when the hub has closed the connection.
func (l *lane) gone() <-chan struct{} {
	if l.link == nil {
		return nil
	}
	return l.link.gone
}

// unused fires when the connection was idle for long.
func (l *lane) unused() <-chan time.Time {
	if l.link == nil || l.idle == nil {
		return nil
	}
	return l.idle.C
}

// limit is the time that a request with a body of this size has: a slow link is not a dead one.
func (o *Options) limit(size int) time.Duration {
	return o.Timeout + time.Duration(size/(4<<10))*time.Second
}

// exchange makes one request within the time that requests have.
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

// retire gives up a connection that is gone, and returns why if the hub did not close it in good
// order.
func (l *lane) retire() error {
	err := l.link.socket.loss()
	l.hangUp()
	if err == io.EOF {
		return nil
	}
	return err
}

// hangUp gives the connection up.
func (l *lane) hangUp() {
	if l.link == nil {
		return
	}
	l.link.close()
	l.set(nil)
}

// cut closes the socket under whatever uses it. Any goroutine may call it.
func (l *lane) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.link != nil {
		_ = l.link.socket.Close()
	}
}
