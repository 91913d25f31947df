package httprange

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// Fetcher reads the files of updates by their URLs: it is an agent.Fetcher for boards.
type Fetcher struct {
	// Dial connects to a host, which has a port if the URL has one. It is responsible for TLS, which
	// URLs that begin with https: ask for (secure). Required.
	Dial func(ctx context.Context, host string, secure bool) (Conn, error)
	// Timeout is Options.Timeout. Default: 30 s.
	Timeout time.Duration
}

var errURL = failure(transport.Invalid, "the URL of the file is not one that begins with http: or https:")

// Fetch returns the content of url from byte offset on. The first Read sends the request, so the
// errors about connection and answer are those of Read.
func (f *Fetcher) Fetch(ctx context.Context, url string, offset int64) (io.ReadCloser, error) {
	rest, secure := strings.CutPrefix(url, "https://")
	if !secure {
		var ok bool
		if rest, ok = strings.CutPrefix(url, "http://"); !ok {
			return nil, errURL
		}
	}
	rest, _, _ = strings.Cut(rest, "#")
	host, path := rest, "/"
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		host, path = rest[:i], "/"+strings.TrimPrefix(rest[i:], "/")
	}
	source, err := New(func(ctx context.Context) (Conn, error) { return f.Dial(ctx, host, secure) },
		&Options{Host: host, Path: path, Timeout: f.Timeout})
	if err != nil {
		return nil, err
	}
	return &body{ctx: ctx, source: source, at: offset}, nil
}

// body is a file from some byte on.
type body struct {
	ctx    context.Context // of Fetch, for the calls of Read
	source *Source
	at     int64
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case b.source.total != 0 && b.at == b.source.total:
		return 0, io.EOF
	}
	n, err := b.source.readSome(b.ctx, p, b.at)
	b.at += int64(n)
	if err != nil {
		b.source.hangUp()
		if b.ctx.Err() != nil {
			err = b.ctx.Err()
		}
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error { return b.source.Close() }
