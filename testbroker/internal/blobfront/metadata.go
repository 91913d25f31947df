package blobfront

import (
	"encoding/xml"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// The limits of all metadata of a blob or container: their size in bytes, and how many there are.
const (
	maxMetadata      = 8 << 10
	maxMetadataNames = 64
)

const metadataPrefix = "x-ms-meta-"

// metadataName is the form of a name; the service wants identifiers of C#.
var metadataName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// metadataOf returns the metadata in a request's headers, by names in lower case: names have no
// letter case in HTTP.
func metadataOf(q *web.Request) (map[string]string, *files.BlobError) {
	all, size := make(map[string]string), 0
	for header, values := range q.Header {
		name, ok := strings.CutPrefix(strings.ToLower(header), metadataPrefix)
		if !ok {
			continue
		}
		value := strings.Join(values, ",")
		size += len(name) + len(value)
		switch {
		case name == "":
			return nil, blobEmptyMetadata
		case size > maxMetadata, len(all) >= maxMetadataNames:
			return nil, blobMuchMetadata
		case !metadataName.MatchString(name), strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			return nil, blobBadMetadata
		}
		all[name] = value
	}
	return all, nil
}

func setMetadata(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	all, bad := metadataOf(q)
	if bad != nil {
		return web.Answer{}, bad
	}
	when, bad := changeCondition(q)
	if bad != nil {
		return web.Answer{}, bad
	}
	release, bad := t.store.Reserve(maxMetadata)
	if bad != nil {
		return web.Answer{}, bad
	}
	defer release()
	file, bad := t.store.SetMetadata(t.name, all, when)
	a := answer(q, http.StatusOK)
	setVersion(&a, file.ETag, file.Stored)
	return a, bad
}

func getMetadata(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	file, ok := t.store.Get(t.name)
	if !ok {
		return web.Answer{}, files.BlobNotFound
	}
	a := answer(q, http.StatusOK)
	setVersion(&a, file.ETag, file.Stored)
	setMetadataHeaders(&a, file.Metadata)
	return a, checkRead(q, file.ETag, file.Stored)
}

func setMetadataHeaders(a *web.Answer, all map[string]string) {
	for name, value := range all {
		a.Header.Set(metadataPrefix+name, value)
	}
}

// listedMetadata is metadata in a list. Each name is an element.
type listedMetadata map[string]string

// MarshalXML writes the elements in the order of their names.
func (m listedMetadata) MarshalXML(e *xml.Encoder, start xml.StartElement) error {
	if err := e.EncodeToken(start); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if err := e.EncodeElement(m[name], xml.StartElement{Name: xml.Name{Local: name}}); err != nil {
			return err
		}
	}
	return e.EncodeToken(start.End())
}
