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

	"github.com/hubline-iot/hubline/internal/percent"
	"github.com/hubline-iot/hubline/transport"
)

// apiVersion is the version of the hub's interface.
const apiVersion = "2021-04-12"

// A grant is the hub's leave to write one file: where, and with which signature.
type grant struct {
	correlation           string
	host, container, blob string
	signature             string    // the query of the upload URI; secret
	expires               time.Time // by the local clock; zero = not known

	// Guarded by upload.turn.
	refreshed bool      // got because storage refused the one before, and has not worked yet
	renewAt   time.Time // when to ask for another one; zero = when storage refuses it
}

// String names the file, and not the signature.
func (g *grant) String() string { return g.container + "/" + g.blob }

// GoString is String.
func (g *grant) GoString() string { return g.String() }

// secrets are the signature as it stands in the upload URI, and as it is without escapes. A peer
// may repeat it without its name.
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

// sameFile reports whether both are leave to write the same file.
func (g *grant) sameFile(other *grant) bool {
	return g.host == other.host && g.container == other.container && g.blob == other.blob
}

// target is the upload URI with something more in its query.
func (g *grant) target(scheme, more string) *url.URL {
	u := &url.URL{Scheme: scheme, Host: g.host, Path: "/" + g.container + "/" + g.blob, RawQuery: g.signature + more}
	u.RawPath = "/" + escape(g.container) + "/" + escape(g.blob)
	return u
}

// address is the upload URI without its signature.
func (g *grant) address(scheme string) string {
	return scheme + "://" + g.host + "/" + escape(g.container) + "/" + escape(g.blob)
}

// escape encodes what is between slashes.
func escape(path string) string {
	out := make([]byte, 0, len(path)+16)
	for i, part := range strings.Split(path, "/") {
		if i > 0 {
			out = append(out, '/')
		}
		out = percent.Append(out, part)
	}
	return string(out)
}

// ask gets a grant from the hub. One try. Once the request is on its way it may outlast ctx, for
// half of NotifyTimeout: the hub may be about to give a place, and must be told then that nobody
// needs it, which has the other half. At the very last, nothing outlasts ctx, and the hub has half
// of what is left of it for its answer.
func (p *upload) ask(ctx context.Context) (*grant, error) {
	if p.last {
		end, _ := ctx.Deadline()
		ctx, cancel := context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
		return p.uploader.ask(ctx, p.name)
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
	g, err := p.uploader.ask(httptrace.WithClientTrace(late,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }}), p.name)
	if ctx.Err() != nil && sent.Load() {
		p.notice = half
	}
	return g, err
}

// ask gets a grant from the hub. One try.
func (u *Uploader) ask(ctx context.Context, name string) (*grant, error) {
	asked := time.Now()
	a, err := u.post(ctx, "/files", map[string]string{"blobName": name})
	if err != nil {
		return nil, err
	}
	var body struct{ CorrelationID, HostName, ContainerName, BlobName, SASToken string }
	if json.Unmarshal(a.body, &body) != nil {
		return nil, strange("the hub's answer is not JSON")
	}
	g := &grant{
		correlation: body.CorrelationID, host: body.HostName, container: body.ContainerName, blob: body.BlobName,
		signature: strings.TrimPrefix(body.SASToken, "?"),
	}
	fields, err := url.ParseQuery(g.signature)
	switch {
	case g.correlation == "" || g.container == "" || g.blob == "":
		return nil, strange("the hub's answer lacks correlationId, containerName or blobName")
	case !validHost(g.host):
		return nil, strange("the hub's answer has no valid hostName")
	case err != nil || fields.Get("sig") == "" || !printable(g.signature) || strings.ContainsAny(g.signature, " #"):
		// an error would show it
		return nil, strange("the hub's answer has no valid sasToken")
	}
	g.expire(fields.Get("se"), asked, a.clock(u.creds.Time()))
	return g, nil
}

// clock is the service's time, or else now.
func (a *answer) clock(now time.Time) time.Time {
	if at, err := http.ParseTime(a.header.Get("Date")); err == nil {
		return at
	}
	return now
}

// expire notes when the signature ends. The two service times are compared with each other, so the
// device's clock may be wrong.
func (g *grant) expire(se string, asked, served time.Time) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z", time.DateOnly} {
		// ISO 8601 as the blob service takes it
		if at, err := time.Parse(layout, se); err == nil {
			if life := at.Sub(served); life > 0 {
				g.expires = asked.Add(life)
				g.renewAt = g.expires.Add(-min(life/10, 5*time.Minute))
			}
			return
		}
	}
}

func strange(what string) *transport.Error {
	return &transport.Error{Kind: transport.Protocol, Op: transport.OpSend, Proto: proto, Err: errors.New(what)}
}

// validHost accepts a host name or address, with a port or without.
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

// current is the grant to use now. One that runs out soon is replaced, by whoever comes first.
func (p *upload) current(ctx context.Context) (*grant, error) {
	if err := p.turn.take(ctx); err != nil {
		return nil, err
	}
	defer p.turn.give()
	g := p.grant
	if g.renewAt.IsZero() || time.Now().Before(g.renewAt) {
		return g, nil
	}
	err := p.replaceHolding(ctx, false)
	if err != nil && time.Now().Before(g.expires) {
		// it is good for a while, and the hub need not be asked before each block
		g.renewAt = time.Now().Add(p.uploader.opt.RequestTimeout)
		return g, nil
	}
	return p.grant, err
}

// worked is told that storage took g.
func (p *upload) worked(ctx context.Context, g *grant) {
	if p.turn.take(ctx) == nil {
		g.refreshed = false
		p.turn.give()
	}
}

// refused is told that storage did not take g, for refusal. Nil means that there is another one
// now. A second one that is refused before it worked is the end.
func (p *upload) refused(ctx context.Context, g *grant, refusal error) error {
	if err := p.turn.take(ctx); err != nil {
		return err
	}
	defer p.turn.give()
	switch {
	case p.grant != g:
		return nil
	case g.refreshed:
		return refusal
	}
	return p.replaceHolding(ctx, true)
}

// replaceHolding asks the hub for another grant for the same file; the caller holds the turn. The
// blocks that storage has belong to the file, not to the grant.
func (p *upload) replaceHolding(ctx context.Context, refreshed bool) error {
	g, err := p.ask(ctx)
	if err != nil {
		return &stepError{"new upload URI", err}
	}
	if !g.sameFile(p.grant) && p.stored.Load() > 0 {
		p.giveBack(ctx, g)
		return &transport.Error{Kind: transport.Conflict, Op: transport.OpSend, Proto: proto, Err: errors.New(
			"the hub now keeps uploads in another place than where the first blocks are: upload again")}
	}
	g.refreshed = refreshed
	p.grant = g
	p.renewals++
	return nil
}

// giveBack tells the hub that nobody needs g, once; the caller holds the turn. After ctx's end that
// is time which the notification has no more.
func (p *upload) giveBack(ctx context.Context, g *grant) {
	began, late := time.Now(), ctx
	if !p.last {
		var cancel context.CancelFunc
		late, cancel = context.WithTimeout(context.WithoutCancel(ctx), p.notice/2)
		defer cancel()
	}
	_, _ = p.uploader.post(late, "/files/notifications", notice{CorrelationID: g.correlation,
		StatusCode: http.StatusConflict, StatusDescription: "upload URI for another place"})
	if ctx.Err() != nil {
		p.notice -= time.Since(began)
	}
}

// A turn is a lock that may be held over a wait.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t turn) give() { <-t }
