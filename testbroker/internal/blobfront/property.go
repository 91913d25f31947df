package blobfront

import (
	"cmp"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// A property is what a writer states about a file for the readers' header of that name.
type property struct {
	header  string
	instead string // the query parameter with which a SAS overrides it
	of      func(b *hubdata.Blob) *string
}

var properties = []property{
	{"Content-Type", "rsct", func(b *hubdata.Blob) *string { return &b.ContentType }},
	{"Content-Encoding", "rsce", func(b *hubdata.Blob) *string { return &b.ContentEncoding }},
	{"Content-Language", "rscl", func(b *hubdata.Blob) *string { return &b.ContentLanguage }},
	{"Content-Disposition", "rscd", func(b *hubdata.Blob) *string { return &b.ContentDisposition }},
	{"Cache-Control", "rscc", func(b *hubdata.Blob) *string { return &b.CacheControl }},
}

// The length limit of a property in bytes, and the type of a file whose writer states none.
const (
	maxProperty = 1 << 10
	plainBytes  = "application/octet-stream"
)

// readProperties reads the properties of a file that a request stores. whole: the body is the file,
// so without a header of the store the one of the body counts; that is so for all but
// Content-Disposition. Source: the pages "Put Blob" and "Put Block List" of the storage services'
// REST reference.
func readProperties(q *web.Request, file *hubdata.Blob, whole bool) *files.BlobError {
	for _, p := range properties {
		v := q.Header.Get("x-ms-blob-" + strings.ToLower(p.header))
		if v == "" && whole && p.header != "Content-Disposition" {
			v = q.Header.Get(p.header)
		}
		if len(v) > maxProperty {
			return blobBadHeader
		}
		*p.of(file) = strings.Clone(v)
	}
	file.ContentType = cmp.Or(file.ContentType, plainBytes)
	return nil
}

// setProperties adds the properties of a file to an answer, or what the SAS has instead.
func setProperties(q *web.Request, a *web.Answer, file *hubdata.Blob) {
	for _, p := range properties {
		v := *p.of(file)
		if q.Query.Get("sig") != "" {
			v = cmp.Or(q.Query.Get(p.instead), v)
		}
		if v != "" {
			a.Header.Set(p.header, v)
		}
	}
}
