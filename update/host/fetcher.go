package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/dialer"
	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/neterr"
	"github.com/hubline-iot/hubline/update/agent"
)

// silence is how long a server may send nothing.
const silence = 30 * time.Second

// NewFetcher returns a Fetcher on an HTTP client, which brings proxies and trusted certificates.
// nil: a client of its own with the settings of http.DefaultTransport. At most 10 redirects are
// followed, also with a CheckRedirect of the client. A server that sends nothing for 30 seconds
// counts as lost.
func NewFetcher(client *http.Client) agent.Fetcher {
	if client == nil {
		t, _ := http.DefaultTransport.(*http.Transport)
		if t == nil {
			t = new(http.Transport)
		}
		t = t.Clone()
		t.MaxResponseHeaderBytes = 64 << 10
		client = &http.Client{Transport: t}
	}
	own := *client
	own.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		r.Header.Del("Referer") // the address before, which may grant access
		switch {
		case len(via) >= maxRedirects:
			return errRedirects
		case client.CheckRedirect != nil:
			return client.CheckRedirect(r, via)
		}
		return nil
	}
	return fetcher{&own}
}

const maxRedirects = 10 // as http.Client has it

var errRedirects = failure(transport.Protocol, errors.New("file: the server sent more than 10 redirects"))

type fetcher struct{ client *http.Client }

const proto = "http"

func failure(k transport.Kind, err error) *transport.Error {
	return &transport.Error{Kind: k, Scope: transport.ScopeOperation, Proto: proto, Err: err}
}

var (
	errURL      = failure(transport.Invalid, errors.New("file: the URL is not one of http or https"))
	errSilent   = failure(transport.Timeout, errors.New("file: the server sent nothing for 30 seconds"))
	errNoRanges = failure(transport.Unsupported, errors.New("file: the server does not serve parts of files, so the "+
		"download cannot continue; use another server"))
	errRange = failure(transport.Protocol, fmt.Errorf("file: the server sent another part than the requested one: %w",
		transport.ErrMaybeDamaged))
	errEnd = failure(transport.Protocol, errors.New("file: the server's file is shorter than that of the manifest"))
)

// Fetch implements agent.Fetcher.
func (f fetcher) Fetch(ctx context.Context, address string, offset int64) (io.ReadCloser, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errURL
	}
	ctx, cancel := context.WithCancelCause(ctx)
	b := &body{ctx: ctx, cancel: cancel, quiet: time.AfterFunc(silence, func() { cancel(errSilent) })}
	request := (&http.Request{Method: http.MethodGet, URL: u, Host: u.Host, Header: http.Header{
		"Accept-Encoding": {"identity"}, // ranges are of these bytes
	}}).WithContext(ctx)
	if offset > 0 {
		request.Header.Set("Range", "bytes="+strconv.FormatInt(offset, 10)+"-")
	}
	response, err := f.client.Do(request)
	if err != nil {
		return nil, b.fail(err)
	}
	b.quiet.Stop()
	b.ReadCloser = response.Body
	if err := accept(response, offset); err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

// accept checks that an answer has the file from offset on.
func accept(r *http.Response, offset int64) error {
	switch {
	case r.StatusCode == http.StatusOK && offset == 0:
		return nil
	case r.StatusCode == http.StatusOK:
		return errNoRanges
	case r.StatusCode == http.StatusPartialContent:
		if !strings.HasPrefix(r.Header.Get("Content-Range"), "bytes "+strconv.FormatInt(offset, 10)+"-") {
			return errRange
		}
		return nil
	case r.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return errEnd
	}
	kind := statuscode.Of(r.StatusCode, statuscode.Storage).Kind
	if r.StatusCode/100 == 2 || r.StatusCode/100 == 3 {
		kind = transport.Protocol
	}
	e := failure(kind, &transport.StatusError{Service: "storage", Status: r.StatusCode})
	if after, ok := times.RetryAfterHeaders(r.Header.Get, time.Now()); ok {
		e.RetryAfter = min(after, times.MaxRetryAfter)
	}
	return e
}

// body is a file that ends when the server is silent.
type body struct {
	io.ReadCloser // nil until there is an answer
	ctx           context.Context
	cancel        context.CancelCauseFunc
	quiet         *time.Timer
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.quiet.Reset(silence) // the caller may be slow; only the server's time counts
	n, err := b.ReadCloser.Read(p)
	b.quiet.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.fail(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.quiet.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// fail returns the error of a request without its URL, which may grant access.
func (b *body) fail(err error) error {
	b.quiet.Stop()
	cause := context.Cause(b.ctx)
	b.cancel(nil)
	switch {
	case cause == errSilent: //nolint:errorlint // the value itself
		return errSilent
	case cause != nil:
		return cause
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if err == errRedirects { //nolint:errorlint // the value itself
		return errRedirects
	}
	shown := scrub.Cause(err)
	kind, ok := neterr.Kind(err)
	switch {
	case ok:
	case isMalformed(err.Error()):
		kind, shown = transport.Protocol, dialer.DamagedError{Cause: shown}
	default:
		kind = transport.Network
	}
	return &transport.Error{Kind: kind, Scope: transport.ScopeConnection, Proto: proto, Err: shown}
}

// isMalformed reports whether net/http, whose errors have no type, has got something else than
// HTTP.
func isMalformed(text string) bool {
	for _, sign := range [...]string{"malformed ", "bad Content-Length", "headers exceeded"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}
