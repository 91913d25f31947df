// Package httprange reads an image over HTTP/1.1, for package update. It is made for boards: it
// needs a connection, with TLS if the server wants that, and links no net/http.
//
// One request asks for the whole rest of the image, and its answer is read as slowly as the flash
// takes it. After a failure the next request begins where the last one ended. The ETag and the size
// of the first answer hold for all: a Source returns update.ErrChanged when the image was replaced.
// They are kept in RAM. After a reset the hash in the manifest notices it.
//
// A Fetcher does the same for the files of package update/agent, by their URLs.
package httprange

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/internal/lifetime"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update"
)

// Conn is a connection to the server. A net.Conn and a engine.Conn satisfy it.
type Conn interface {
	Read(p []byte) (int, error)
	Write(p []byte) (int, error)
	// Close unblocks Read and Write.
	Close() error
	SetReadDeadline(t time.Time) error
}

// Dial connects to the server. It must end when ctx does.
type Dial func(ctx context.Context) (Conn, error)

// Options are the settings of a Source. Host and Path are required.
type Options struct {
	// Host is the name of the server, for the header Host.
	Host string
	// Path is the path of the image, with a query if it has one: "/updates/7.bin?sig=...". It is
	// escaped already. Errors do not contain it, because it may grant access.
	Path string
	// Timeout is how long the server may send nothing. It also limits a dial, and the sending of a
	// request, which may begin with a TLS handshake. Default: 30 s. A server that sends less than 1 KB
	// while the Source waits for 2 minutes has failed, too.
	Timeout time.Duration
}

// Source is an update.Source. It is not safe for concurrent use.
type Source struct {
	dial Dial
	opt  Options

	conn        Conn // nil: none
	in          [512]byte
	unread, end int // of in

	waited time.Duration // for the latest got bytes of the server
	got    int

	off, left int64 // the open answer continues at off, and has left more bytes
	etag      string
	total     int64 // 0: not known
}

var _ update.Source = (*Source)(nil)

const proto = "http"

func failure(k transport.Kind, text string) error {
	return &transport.Error{Kind: k, Proto: proto, Err: errors.New(text)}
}

var (
	errClosed = failure(transport.Network, "the server closed the connection")
	errSilent = failure(transport.Timeout, "the server sent nothing within Options.Timeout")
	errNoConn = failure(transport.Timeout, "no connection within Options.Timeout")
	errSlow   = failure(transport.Timeout, "the server sent less than 1 KB in 2 minutes")
)

// New returns a Source. The error, of Kind Invalid, names a wrong option.
func New(dial Dial, o *Options) (*Source, error) {
	if o == nil {
		o = new(Options)
	}
	s := &Source{dial: dial, opt: *o}
	if s.opt.Timeout == 0 {
		s.opt.Timeout = 30 * time.Second
	}
	switch {
	case dial == nil:
		return nil, failure(transport.Invalid, "dial is nil; give the function that connects")
	case !printable(o.Host) || strings.Contains(o.Host, "/"):
		return nil, failure(transport.Invalid, "Options.Host is empty or no host name")
	case !printable(o.Path) || o.Path[0] != '/' || len(o.Path) > maxPath:
		return nil, failure(transport.Invalid, "Options.Path: begin with /, escape it, in 2048 bytes at most")
	case o.Timeout < 0:
		return nil, failure(transport.Invalid, "Options.Timeout is negative; give a duration, 0 for 30 s")
	}
	return s, nil
}

const maxPath = 2048

// printable reports whether s can be part of a request's head.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// Close closes the connection, if there is one. The Source remains usable.
func (s *Source) Close() error {
	s.hangUp()
	return nil
}

func (s *Source) hangUp() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
	s.conn, s.left, s.unread, s.end, s.waited, s.got = nil, 0, 0, 0, 0, 0
}

// ReadAt implements update.Source. Its errors are ctx's, update.ErrChanged or a *transport.Error.
// Kind Unsupported: the server does not serve parts of files.
func (s *Source) ReadAt(ctx context.Context, p []byte, off int64) error {
	for len(p) > 0 {
		n, err := s.readSome(ctx, p, off)
		if err != nil {
			s.hangUp()
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		p, off = p[n:], off+int64(n)
	}
	return nil
}

// readSome reads at most the rest of one answer.
func (s *Source) readSome(ctx context.Context, p []byte, off int64) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if s.conn != nil && s.left > 0 && s.off != off {
		s.hangUp() // the answer in progress has other bytes
	}
	if s.conn == nil {
		if err := s.connect(ctx); err != nil {
			return 0, err
		}
	}
	conn := s.conn
	stop := lifetime.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if s.left == 0 {
		if err := s.request(off); err != nil {
			return 0, err
		}
	}
	p = p[:min(int64(len(p)), s.left)]
	n := copy(p, s.in[s.unread:s.end])
	s.unread += n
	if n == 0 {
		var err error
		if n, err = s.receive(p); err != nil {
			return 0, err
		}
	}
	s.off, s.left = s.off+int64(n), s.left-int64(n)
	return n, nil
}

func (s *Source) connect(ctx context.Context) error {
	limited, cancel := lifetime.WithinTime(ctx, s.opt.Timeout)
	err := callback.Call("the dial function of httprange.New", func() (err error) {
		s.conn, err = s.dial(limited)
		return err
	})
	cancel()
	switch {
	case err == nil && s.conn == nil:
		return failure(transport.Invalid, "the dial function of httprange.New returned no connection")
	case err == nil:
		return nil
	}
	s.conn = nil
	if limited.Err() == context.DeadlineExceeded { //nolint:errorlint // the value itself
		return errNoConn
	}
	return asNetwork(err)
}

// request asks for the rest of the image from off on, and reads the head of the answer.
func (s *Source) request(off int64) error {
	b := make([]byte, 0, 256+len(s.opt.Path)+len(s.opt.Host)+2*len(s.etag))
	b = append(b, "GET "+s.opt.Path+" HTTP/1.1\r\nHost: "+s.opt.Host+"\r\nRange: bytes="...)
	b = strconv.AppendInt(b, off, 10)
	b = append(b, "-\r\nAccept-Encoding: identity\r\n"...)
	if s.etag != "" {
		// Servers know one header or the other; blob storage knows If-Match.
		b = append(b, "If-Match: "+s.etag+"\r\nIf-Range: "+s.etag+"\r\n"...)
	}
	b = append(b, "\r\n"...)
	conn := s.conn
	late := time.AfterFunc(s.opt.Timeout, func() { _ = conn.Close() })
	defer late.Stop() // Write may panic
	_, err := conn.Write(b)
	switch {
	case !late.Stop():
		return errSilent
	case err != nil:
		return asNetwork(err)
	}
	h, err := s.readHead()
	if err != nil {
		return err
	}
	if err := s.accept(&h, off); err != nil {
		return err
	}
	s.off, s.left = off, h.length
	return nil
}

// receive reads from the connection into p.
func (s *Source) receive(p []byte) (int, error) {
	began := time.Now()
	if err := s.conn.SetReadDeadline(began.Add(s.opt.Timeout)); err != nil {
		return 0, asNetwork(err)
	}
	n, err := s.conn.Read(p)
	s.waited, s.got = s.waited+time.Since(began), s.got+n
	if s.got >= times.MinProgress {
		s.waited, s.got = 0, 0
	}
	switch late, ok := err.(interface{ Timeout() bool }); {
	case s.waited >= times.ProgressTime:
		return 0, errSlow
	case n > 0:
		return min(n, len(p)), nil
	case err == nil:
		return 0, asNetwork(io.ErrNoProgress)
	case ok && late.Timeout():
		return 0, errSilent
	case transport.Find(err) == nil:
		return 0, errClosed
	}
	return 0, asNetwork(err)
}

// asNetwork makes the error of a connection a *transport.Error, if it is none, and hides its
// secrets.
func asNetwork(err error) error {
	err = scrub.Cause(err)
	if transport.Find(err) != nil {
		return err
	}
	return &transport.Error{Kind: transport.Network, Scope: transport.ScopeConnection, Proto: proto, Err: err}
}
