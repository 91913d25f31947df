package fileupload

import (
	"context"
	"crypto/md5"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/transport"
)

// storageVersion is the first version of the blob service's API with blocks of 4000 MiB.
const storageVersion = "2019-12-12"

// putBlob writes the whole file in one request, in one attempt.
func (p *upload) putBlob(ctx context.Context, body []byte, maybeStored *bool) error {
	header := http.Header{"X-Ms-Blob-Type": {"BlockBlob"}, "X-Ms-Blob-Content-Md5": {digest(body)}}
	return p.put(ctx, "", header, body, maybeStored)
}

// putBlock stages a block, in one attempt.
func (p *upload) putBlock(ctx context.Context, id string, body []byte) error {
	return p.put(ctx, "&comp=block&blockid="+string(texts.AppendEscaped(nil, id)), http.Header{}, body, new(bool))
}

// commit makes a file of the first n blocks, in one attempt. It is idempotent: storage looks for a
// block among the staged ones first, then among those of the file itself.
func (p *upload) commit(ctx context.Context, n int, sum string, maybeStored *bool) error {
	var list strings.Builder
	list.WriteString(`<?xml version="1.0" encoding="utf-8"?><BlockList>`)
	for i := range n {
		list.WriteString("<Latest>" + blockID(p.id, i) + "</Latest>")
	}
	list.WriteString("</BlockList>")
	return p.put(ctx, "&comp=blocklist", http.Header{"X-Ms-Blob-Content-Md5": {sum}, "Content-Type": {"application/xml"}},
		[]byte(list.String()), maybeStored)
}

// put sends one request to storage. If storage refuses the signature, put replaces it once and
// sends the request again. put sets maybeStored if storage may have executed the request although
// put fails: there was no answer, or storage failed.
func (p *upload) put(ctx context.Context, query string, header http.Header, body []byte, maybeStored *bool) error {
	u := p.uploader
	header.Set("x-ms-version", storageVersion)
	header.Set("Content-MD5", digest(body))
	header.Set("User-Agent", u.agent)
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/octet-stream")
	}
	for replaced := false; ; replaced = true {
		g, err := p.current(ctx)
		if err != nil {
			return err
		}
		r := &request{method: http.MethodPut, target: g.target(u.scheme, query), header: header, body: body}
		a, err := u.try(ctx, u.storage, r)
		switch {
		case err != nil:
			*maybeStored = *maybeStored || r.whole
			return withoutSecrets(err, g)
		case a.isCreated():
			p.accepted.Store(true)
			p.markAccepted(ctx, g)
			return nil
		}
		refusal := storageRefusal(a, g, u.creds.Time())
		*maybeStored = *maybeStored || a.status >= 500 || refusal.Kind == transport.Unavailable ||
			refusal.Kind == transport.Timeout
		if replaced || refusal.Kind != transport.Unauthorized {
			return refusal
		}
		if err := p.replaceRefused(ctx, g, refusal); err != nil {
			return err
		}
	}
}

// digest returns the MD5 of a body in header form. The blob service checks it, against damage in
// transit.
func digest(b []byte) string {
	sum := md5.Sum(b)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// isCreated reports whether storage has taken a file or block. Storage gives each answer an id; an
// intercepting proxy does not.
func (a *answer) isCreated() bool {
	return a.status == http.StatusCreated && a.header.Get("x-ms-request-id") != ""
}
