package fileupload

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// apiVersion is the version of the hub's REST API.
const apiVersion = "2021-04-12"

// A grant is the hub's permission to write one file: its location and signature.
type grant struct {
	correlation           string
	host, container, blob string
	signature             string    // the query of the upload URI; secret
	expires               time.Time // by the local clock; zero = unknown

	// Guarded by upload.grantLock.
	refreshed bool      // replaces a refused grant and has not succeeded yet
	renewAt   time.Time // when to request another one; zero = when storage refuses it
}

// String returns the file's location without the signature.
func (g *grant) String() string { return g.container + "/" + g.blob }

// GoString returns the same as String.
func (g *grant) GoString() string { return g.String() }

// secrets returns the signature as it stands in the upload URI, and unescaped. Both are needed to
// scrub a peer's text that repeats the signature without its name.
func (g *grant) secrets() []string {
	var all []string
	for part := range strings.SplitSeq(g.signature, "&") {
		if sig, ok := strings.CutPrefix(part, "sig="); ok {
			all = append(all, sig)
			if plain, err := url.QueryUnescape(sig); err == nil {
				all = append(all, plain)
			}
		}
	}
	return all
}

// sameFile reports whether both grants are for the same file.
func (g *grant) sameFile(other *grant) bool {
	return g.host == other.host && g.container == other.container && g.blob == other.blob
}

// target returns the upload URI with more appended to its query.
func (g *grant) target(scheme, more string) *url.URL {
	u := &url.URL{Scheme: scheme, Host: g.host, Path: "/" + g.container + "/" + g.blob, RawQuery: g.signature + more}
	u.RawPath = "/" + escape(g.container) + "/" + escape(g.blob)
	return u
}

// address returns the upload URI without its signature.
func (g *grant) address(scheme string) string {
	return scheme + "://" + g.host + "/" + escape(g.container) + "/" + escape(g.blob)
}

// escape escapes each segment of a path.
func escape(path string) string {
	out := make([]byte, 0, len(path)+16)
	for i, part := range strings.Split(path, "/") {
		if i > 0 {
			out = append(out, '/')
		}
		out = texts.AppendEscaped(out, part)
	}
	return string(out)
}

// requestGrant gets a grant from the hub, in one attempt. After the request was sent it may outlast
// ctx by half of NotifyTimeout: the hub may be about to grant an upload, which then must be given
// back in the other half. If lastNotice is set, the request does not outlast ctx, and the hub has
// half of the remaining time to answer.
func (p *upload) requestGrant(ctx context.Context) (*grant, error) {
	if p.lastNotice {
		end, _ := ctx.Deadline()
		ctx, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		return p.uploader.requestGrant(ctx, p.name)
	}
	half := p.uploader.opt.NotifyTimeout / 2
	late, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var sent atomic.Bool
	defer context.AfterFunc(ctx, func() {
		if !sent.Load() {
			cancel()
			return
		}
		timer := time.AfterFunc(half, cancel)
		context.AfterFunc(late, func() { timer.Stop() })
	})()
	g, err := p.uploader.requestGrant(httptrace.WithClientTrace(late,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}), p.name)
	if ctx.Err() != nil && sent.Load() {
		p.notifyTime = half
	}
	return g, err
}

// requestGrant gets a grant from the hub, in one attempt.
func (u *Uploader) requestGrant(ctx context.Context, name string) (*grant, error) {
	asked := time.Now()
	a, err := u.post(ctx, "/files", map[string]string{"blobName": name}, http.StatusOK)
	if err != nil {
		return nil, err
	}
	var body struct{ CorrelationID, HostName, ContainerName, BlobName, SASToken string }
	if json.Unmarshal(a.body, &body) != nil {
		return nil, unexpected("the answer is not JSON, as a hub's is: a proxy or a captive portal may have answered")
	}
	g := &grant{
		correlation: body.CorrelationID, host: body.HostName, container: body.ContainerName, blob: body.BlobName,
		signature: strings.TrimPrefix(body.SASToken, "?"),
	}
	fields, err := url.ParseQuery(g.signature)
	switch {
	case g.correlation == "" || g.container == "" || g.blob == "":
		return nil, unexpected("the hub's answer lacks correlationId, containerName or blobName")
	case !validHost(g.host):
		return nil, unexpected("the hub's answer has no valid hostName")
	case err != nil || fields.Get("sig") == "" || !printable(g.signature) || strings.ContainsAny(g.signature, " #"):
		// an error would show the signature
		return nil, unexpected("the hub's answer has no valid sasToken")
	}
	g.setExpiry(fields.Get("se"), asked, a.clock(u.creds.Time()))
	return g, nil
}

// clock returns the service's time, or now if the answer has none.
func (a *answer) clock(now time.Time) time.Time {
	if at, err := http.ParseTime(a.header.Get("Date")); err == nil {
		return at
	}
	return now
}

// setExpiry stores when the signature expires. It compares two times of the service, so the
// device's clock may be wrong.
func (g *grant) setExpiry(se string, asked, served time.Time) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z", time.DateOnly} {
		// ISO 8601 in the forms that the blob service accepts
		if at, err := time.Parse(layout, se); err == nil {
			if life := at.Sub(served); life > 0 {
				g.expires = asked.Add(life)
				g.renewAt = g.expires.Add(-min(life/10, 5*time.Minute))
			}
			return
		}
	}
}

func unexpected(what string) *transport.Error {
	return &transport.Error{Kind: transport.Protocol, Op: transport.OpSend, Proto: proto, Err: errors.New(what)}
}

// validHost reports whether s is a host name or address, with or without a port.
func validHost(s string) bool {
	host := s
	if strings.Contains(s, ":") {
		var port string
		var err error
		host, port, err = net.SplitHostPort(s)
		if n, numErr := strconv.ParseUint(port, 10, 16); err != nil || numErr != nil || n == 0 {
			return false
		}
	}
	if net.ParseIP(host) != nil {
		return true
	}
	return (&transport.Credentials{Host: host, DeviceID: "-"}).Validate() == nil
}

// current returns the grant to use now. The first caller replaces a grant that expires soon.
func (p *upload) current(ctx context.Context) (*grant, error) {
	if err := p.grantLock.lock(ctx); err != nil {
		return nil, err
	}
	defer p.grantLock.unlock()
	g := p.grant
	if g.renewAt.IsZero() || time.Now().Before(g.renewAt) {
		return g, nil
	}
	err := p.replaceLocked(ctx, false)
	if err != nil && time.Now().Before(g.expires) {
		// it is still valid; the delay saves a request to the hub before each block
		g.renewAt = time.Now().Add(p.uploader.opt.RequestTimeout)
		return g, nil
	}
	return p.grant, err
}

// markAccepted records that storage accepted g.
func (p *upload) markAccepted(ctx context.Context, g *grant) {
	if p.grantLock.lock(ctx) == nil {
		g.refreshed = false
		p.grantLock.unlock()
	}
}

// replaceRefused replaces g, which storage refused. It returns nil if there is a new grant now, and
// refusal if g itself replaced a refused grant and never succeeded.
func (p *upload) replaceRefused(ctx context.Context, g *grant, refusal error) error {
	if err := p.grantLock.lock(ctx); err != nil {
		return err
	}
	defer p.grantLock.unlock()
	switch {
	case p.grant != g:
		return nil
	case g.refreshed:
		return refusal
	}
	return p.replaceLocked(ctx, true)
}

// replaceLocked requests another grant for the same file; grantLock held. Staged blocks
// belong to the file, not to the grant.
func (p *upload) replaceLocked(ctx context.Context, refreshed bool) error {
	g, err := p.requestGrant(ctx)
	if err != nil {
		return &stepError{"new upload URI", err}
	}
	if !g.sameFile(p.grant) && p.accepted.Load() {
		p.giveBackLocked(ctx, g)
		return &transport.Error{Kind: transport.Conflict, Op: transport.OpSend, Proto: proto, Err: errors.New(
			"the hub now stores uploads in another location than the data so far: upload again")}
	}
	g.refreshed = refreshed
	p.grant = g
	p.renewals++
	return nil
}

// giveBackLocked notifies the hub, in one attempt, that g is not needed; grantLock held. After
// ctx's end, the time it takes is deducted from that of the notification.
func (p *upload) giveBackLocked(ctx context.Context, g *grant) {
	began, late := time.Now(), ctx
	if !p.lastNotice {
		var cancel context.CancelFunc
		late, cancel = context.WithTimeout(context.WithoutCancel(ctx), p.notifyTime/2)
		defer cancel()
	}
	_, _ = p.uploader.post(late, "/files/notifications", notice{CorrelationID: g.correlation,
		StatusCode: http.StatusConflict, StatusDescription: "upload URI for another location"}, http.StatusNoContent)
	if ctx.Err() != nil {
		p.notifyTime -= time.Since(began)
	}
}

// A ctxLock is a lock that may be held during a wait.
type ctxLock chan struct{}

func newCtxLock() ctxLock { return make(ctxLock, 1) }

func (t ctxLock) lock(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t ctxLock) unlock() { <-t }
