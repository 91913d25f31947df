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
func (u *Uploader) try(ctx context.Context, through *service, r *request) (*answer, error) {
	deadline, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	still, piece := u.pace()
	w := newWatch(still, u.takes(len(r.body)), func() { cancel(errSlow) })
	defer w.stop()
	data := &payload{data: r.body, piece: piece, watch: w}
	defer data.take() // net/http may still read it

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
	got := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		conn = info.Conn.(*httpguard.Conn)
		conn.Next()
	}}
	// an http.Client would show the URL in its errors
	response, err := through.RoundTrip(h.WithContext(httptrace.WithClientTrace(deadline, got)))
	if err != nil {
		return nil, through.failure(ctx, deadline, err)
	}
	defer response.Body.Close()
	through.spoke.Store(true)
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, through.failure(ctx, deadline, err)
	}
	return &answer{response.StatusCode, response.Header, text, conn.TLS()}, nil
}

// takes returns the time limit of an attempt with a payload of n bytes.
func (u *Uploader) takes(n int) time.Duration {
	return u.opt.RequestTimeout + time.Duration(float64(n)/float64(u.opt.MinRate)*float64(time.Second))
}

const (
	// leastPiece is the smallest piece of a payload that justifies its own write.
	leastPiece = 512
	// mostPiece is the most that net/http reads of a payload at a time.
	mostPiece = 32 << 10
)

// pace returns the size of the pieces of a payload, and the longest time without progress. A piece
// takes half of that time at MinRate.
func (u *Uploader) pace() (still time.Duration, piece int) {
	still = u.opt.RequestTimeout
	half := float64(u.opt.MinRate) * still.Seconds() / 2
	piece = int(min(max(half, leastPiece), mostPiece))
	return max(still, time.Duration(2*float64(piece)/float64(u.opt.MinRate)*float64(time.Second))), piece
}

// failure returns the error of an attempt without an answer.
func (s *service) failure(caller, deadline context.Context, err error) error {
	switch {
	case caller.Err() != nil:
		return caller.Err()
	case errors.Is(context.Cause(deadline), errSlow):
		return &transport.Error{Kind: transport.Timeout, Scope: transport.Connection, Op: transport.OpSend, Proto: proto,
			Err: errSlow}
	case transport.Find(err) != nil: // from the dial
		return err
	}
	e := protocol.Error(err)
	e.Op = transport.OpSend
	if e.Kind == transport.Protocol && s.spoke.Load() {
		e.Kind = transport.Network // the peer spoke HTTP before, so the data was damaged
	}
	return e
}

// A payload is lent to net/http, which may read it after an attempt has ended, until take is
// called.
type payload struct {
	watch *watch
	piece int // maximum size of a read

	mu   sync.Mutex
	data []byte // nil = taken back
}

// take ends all readers. No reader accesses data after it returns.
func (p *payload) take() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data = nil
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
	n := copy(b[:min(len(b), r.piece)], r.data[r.read:])
	r.read += n
	r.watch.moved(r.read == len(r.data))
	return n, nil
}

// Close does nothing: take ends the reader.
func (r *payloadReader) Close() error { return nil }

// A watch ends an attempt that takes too long as a whole, or makes no progress for too long.
type watch struct {
	still time.Duration
	until time.Time

	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

func newWatch(still, whole time.Duration, end func()) *watch {
	return &watch{still: still, until: time.Now().Add(whole), timer: time.AfterFunc(min(still, whole), end)}
}

// moved records that the network took data. After the last of it only the total limit applies,
// because the data may wait in buffers below.
func (w *watch) moved(last bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	left := time.Until(w.until)
	if !last {
		left = min(left, w.still)
	}
	w.timer.Reset(left)
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
}
