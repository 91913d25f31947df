package fileupload

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/httpguard"
	"github.com/hubline-iot/hubline/transport"
)

// A request goes to the hub or to storage. It may be attempted any number of times, but not
// concurrently.
type request struct {
	method string
	target *url.URL // may hold a secret
	header http.Header
	body   []byte
	whole  bool // the last attempt got no answer, and the service may have all of the request
}

// An answer is the response to a request, of any status.
type answer struct {
	status int
	header http.Header
	body   []byte               // the first maxAnswer bytes
	tls    *tls.ConnectionState // nil without TLS
}

// maxAnswer bounds the body that is read of an answer.
const maxAnswer = 64 << 10

// errSlow is the cause of an attempt that took too long.
var errSlow = errors.New("no answer in time")

// try sends r once, within its deadlines. The error is ctx's if ctx ended, else an *Error of Scope
// Connection: there was no answer. The caller may reuse r's body after the return.
func (u *Uploader) try(ctx context.Context, svc *service, r *request) (*answer, error) {
	deadline, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stallTimeout, chunk := u.progressLimits()
	w := newWatch(stallTimeout, u.attemptTimeout(len(r.body)), func() { cancel(errSlow) })
	defer w.stop()
	data := &payload{data: r.body, chunk: chunk, watch: w, read: len(r.body) == 0}
	defer data.revoke() // net/http may still read it

	h := &http.Request{
		Method: r.method, URL: r.target, Host: r.target.Host, Header: r.header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor:    1,
		ContentLength: int64(len(r.body)), Body: http.NoBody,
	}
	if len(r.body) > 0 {
		h.Body = data.reader()
		h.GetBody = func() (io.ReadCloser, error) { return data.reader(), nil }
	}
	var conn *httpguard.Conn
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn = info.Conn.(*httpguard.Conn)
		conn.Next()
	}}
	// an http.Client would show the URL in its errors
	response, err := svc.RoundTrip(h.WithContext(httptrace.WithClientTrace(deadline, trace)))
	if err != nil {
		r.whole = data.revoke() && conn != nil
		return nil, svc.failure(ctx, deadline, err)
	}
	defer response.Body.Close()
	svc.answered.Store(true)
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		r.whole = data.revoke()
		return nil, svc.failure(ctx, deadline, err)
	}
	return &answer{response.StatusCode, response.Header, text, conn.TLS()}, nil
}

// attemptTimeout returns the time limit of an attempt with a payload of n bytes.
func (u *Uploader) attemptTimeout(n int) time.Duration {
	return u.opt.RequestTimeout + time.Duration(float64(n)/float64(u.opt.MinRate)*float64(time.Second))
}

const (
	// minChunk is the smallest chunk of a payload that justifies its own write.
	minChunk = 512
	// maxChunk is the most that net/http reads of a payload at a time.
	maxChunk = 32 << 10
)

// progressLimits returns the size of the chunks of a payload, and the longest time without
// progress. A chunk takes half of that time at MinRate.
func (u *Uploader) progressLimits() (stallTimeout time.Duration, chunk int) {
	stallTimeout = u.opt.RequestTimeout
	half := float64(u.opt.MinRate) * stallTimeout.Seconds() / 2
	chunk = int(min(max(half, minChunk), maxChunk))
	return max(stallTimeout, time.Duration(2*float64(chunk)/float64(u.opt.MinRate)*float64(time.Second))), chunk
}

// failure returns the error of an attempt without an answer.
func (s *service) failure(caller, deadline context.Context, err error) error {
	switch {
	case caller.Err() != nil:
		return caller.Err()
	case errors.Is(context.Cause(deadline), errSlow):
		return &transport.Error{Kind: transport.Timeout, Scope: transport.ScopeConnection, Op: transport.OpSend, Proto: proto,
			Err: errSlow}
	case transport.Find(err) != nil: // from the dial
		return err
	}
	if !s.answered.Load() {
		err = dialer.First{Err: err, Want: "HTTP"}
	}
	e := protocol.Error(err)
	e.Op = transport.OpSend
	if e.Kind == transport.Protocol && s.answered.Load() {
		e.Kind = transport.Network // the peer spoke HTTP before, so the data was damaged
	}
	return e
}

// A payload is lent to net/http, which may read it after an attempt has ended, until revoke is
// called.
type payload struct {
	watch *watch
	chunk int // maximum size of a read

	mu   sync.Mutex
	data []byte // nil = taken back
	read bool   // a reader has read all of it
}

// revoke ends all readers and reports whether one of them has read everything. No reader accesses
// data after it returns.
func (p *payload) revoke() (read bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data = nil
	return p.read
}

func (p *payload) reader() io.ReadCloser { return &payloadReader{payload: p} }

// A payloadReader reads a payload from its beginning.
type payloadReader struct {
	*payload
	read int
}

// Read copies the next bytes.
func (r *payloadReader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.data == nil:
		return 0, errSlow
	case r.read == len(r.data):
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), r.chunk)], r.data[r.read:])
	r.read += n
	last := r.read == len(r.data)
	r.payload.read = r.payload.read || last
	r.watch.progressed(last)
	return n, nil
}

// Close does nothing: revoke ends the reader.
func (r *payloadReader) Close() error { return nil }

// A watch ends an attempt that takes too long as a whole, or makes no progress for too long.
type watch struct {
	stallTimeout time.Duration
	deadline     time.Time

	mu      sync.Mutex
	timer   *time.Timer
	stopped bool
}

func newWatch(stallTimeout, total time.Duration, end func()) *watch {
	return &watch{stallTimeout: stallTimeout, deadline: time.Now().Add(total),
		timer: time.AfterFunc(min(stallTimeout, total), end)}
}

// progressed records that the network took data. After the last of it only the total limit applies,
// because the data may wait in buffers below.
func (w *watch) progressed(last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	left := time.Until(w.deadline)
	if !last {
		left = min(left, w.stallTimeout)
	}
	w.timer.Reset(left)
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}
