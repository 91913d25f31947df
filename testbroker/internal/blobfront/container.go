package blobfront

import (
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// createContainer makes a container. It is private: there is no access without credentials.
func createContainer(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	if q.Header.Get("x-ms-blob-public-access") != "" {
		return web.Answer{}, blobNoHeader
	}
	metadata, bad := metadataOf(q)
	if bad != nil {
		return web.Answer{}, bad
	}
	c, bad := q.Hub.Files.Containers.Create(t.container, metadata)
	a := answer(q, http.StatusCreated)
	setVersion(&a, c.ETag, c.Modified)
	return a, bad
}

func getContainer(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	c := q.Hub.Files.Containers.Get(t.container)
	if c == nil {
		return web.Answer{}, files.BlobNoContainer
	}
	a := answer(q, http.StatusOK)
	setVersion(&a, c.ETag, c.Modified)
	setMetadataHeaders(&a, c.Metadata)
	a.Header.Set("x-ms-lease-status", "unlocked")
	a.Header.Set("x-ms-lease-state", "available")
	a.Header.Set("x-ms-has-immutability-policy", "false")
	a.Header.Set("x-ms-has-legal-hold", "false")
	return a, checkRead(q, c.ETag, c.Modified)
}

// deleteContainer deletes a container and its blobs. The service takes conditions of time only.
func deleteContainer(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	c, bad := conditionsOf(q)
	if bad != nil {
		return web.Answer{}, bad
	}
	bad = q.Hub.Files.Containers.Delete(t.container, func(one *files.BlobContainer) *files.BlobError {
		if wanted, unwanted := c.failed(one.ETag, one.Modified); wanted || unwanted {
			return blobConditionNotMet
		}
		return nil
	})
	return answer(q, http.StatusAccepted), bad
}

// The XML documents of lists.
type (
	blobList struct {
		XMLName         xml.Name `xml:"EnumerationResults"`
		ServiceEndpoint string   `xml:",attr"`
		ContainerName   string   `xml:",attr"`
		Prefix          string
		Marker          string
		MaxResults      int
		Delimiter       string `xml:",omitempty"`
		Blobs           struct {
			All []any `xml:"all"`
		}
		NextMarker string
	}
	listedBlob struct {
		XMLName    xml.Name `xml:"Blob"`
		Name       string
		Properties blobProperties
		Metadata   listedMetadata `xml:",omitempty"`
	}
	listedPrefix struct {
		XMLName xml.Name `xml:"BlobPrefix"`
		Name    string
	}
	blobProperties struct {
		CreationTime  string `xml:"Creation-Time"`
		LastModified  string `xml:"Last-Modified"`
		Etag          string
		ContentLength int64  `xml:"Content-Length"`
		ContentType   string `xml:"Content-Type"`
		Encoding      string `xml:"Content-Encoding"`
		Language      string `xml:"Content-Language"`
		ContentMD5    string `xml:"Content-MD5"`
		CacheControl  string `xml:"Cache-Control"`
		Disposition   string `xml:"Content-Disposition"`
		BlobType      string
		LeaseStatus   string
		LeaseState    string
		Encrypted     bool `xml:"ServerEncrypted"`
	}
	containerList struct {
		XMLName         xml.Name `xml:"EnumerationResults"`
		ServiceEndpoint string   `xml:",attr"`
		Prefix          string
		Marker          string
		MaxResults      int
		Containers      struct{ Container []listedContainer }
		NextMarker      string
	}
	listedContainer struct {
		Name       string
		Properties containerProperties
		Metadata   listedMetadata `xml:",omitempty"`
	}
	containerProperties struct {
		LastModified string `xml:"Last-Modified"`
		Etag         string
		LeaseStatus  string
		LeaseState   string
	}
)

// maxList is how many entries a page of a list may have.
const maxList = 5000

// A page is the part of a list that a request wants.
type page struct {
	prefix, marker, after string
	most                  int
	metadata              bool
}

// included are the names in the parameter include that a store without versions, copies, snapshots
// and tags can answer: besides metadata there is nothing to add.
var included = []string{"", "metadata", "snapshots", "uncommittedblobs", "copy", "deleted", "tags", "versions",
	"deletedwithversions", "immutabilitypolicy", "legalhold", "permissions", "system"}

// parsePage reads the parameters of a list.
func parsePage(query url.Values) (p page, bad *files.BlobError) {
	p = page{prefix: query.Get("prefix"), marker: query.Get("marker"), most: maxList}
	if text := query.Get("maxresults"); text != "" {
		n, err := strconv.Atoi(text)
		switch {
		case err != nil:
			return p, blobBadQuery
		case n < 1:
			return p, blobOutOfRange
		}
		p.most = min(n, maxList)
	}
	after, err := base64.RawURLEncoding.DecodeString(p.marker)
	if err != nil || !files.IsXML(p.prefix) {
		return p, blobBadQuery
	}
	p.after = string(after)
	for _, name := range strings.Split(query.Get("include"), ",") {
		if !slices.Contains(included, name) {
			return p, blobBadQuery
		}
		p.metadata = p.metadata || name == "metadata"
	}
	return p, nil
}

// marker returns the name behind which a page begins in the form for clients.
func marker(after string) string { return base64.RawURLEncoding.EncodeToString([]byte(after)) }

func endpointOf(q *web.Request) string { return "https://" + q.Host + "/" + files.AccountPath + "/" }

func httpTime(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// listBlobs lists the blobs of a container, by page.
func listBlobs(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	p, bad := parsePage(q.Query)
	if bad != nil {
		return web.Answer{}, bad
	}
	store := q.Hub.Files.Store(t.container)
	if store == nil {
		return web.Answer{}, files.BlobNoContainer
	}
	delimiter := q.Query.Get("delimiter")
	if !files.IsXML(delimiter) {
		return web.Answer{}, blobBadQuery
	}
	entries, next, bad := store.List(p.prefix, delimiter, p.after, p.most)
	if bad != nil {
		return web.Answer{}, bad
	}
	doc := blobList{ServiceEndpoint: endpointOf(q), ContainerName: t.container, Prefix: p.prefix, Marker: p.marker,
		MaxResults: p.most, Delimiter: delimiter, NextMarker: marker(next)}
	for i := range entries {
		e := &entries[i]
		if e.Prefix {
			doc.Blobs.All = append(doc.Blobs.All, listedPrefix{Name: e.Name})
			continue
		}
		b := listedBlob{Name: e.Name, Properties: blobProperties{CreationTime: httpTime(e.File.Stored),
			LastModified: httpTime(e.File.Stored), Etag: e.File.ETag, ContentLength: e.File.Size,
			ContentType: e.File.ContentType, Encoding: e.File.ContentEncoding, Language: e.File.ContentLanguage,
			ContentMD5:   base64.StdEncoding.EncodeToString(e.File.MD5),
			CacheControl: e.File.CacheControl, Disposition: e.File.ContentDisposition,
			BlobType: "BlockBlob", LeaseStatus: "unlocked", LeaseState: "available", Encrypted: true}}
		if p.metadata {
			b.Metadata = e.File.Metadata
		}
		doc.Blobs.All = append(doc.Blobs.All, b)
	}
	return xmlAnswer(q, doc)
}

// listContainers lists the containers of the account, by page. That of the uploads is not among
// them.
func listContainers(q *web.Request, _ *target) (web.Answer, *files.BlobError) {
	p, bad := parsePage(q.Query)
	if bad != nil {
		return web.Answer{}, bad
	}
	all := q.Hub.Files.Containers.List(p.prefix, p.after, p.most+1)
	doc := containerList{ServiceEndpoint: endpointOf(q), Prefix: p.prefix, Marker: p.marker, MaxResults: p.most}
	for i, c := range all {
		if i == p.most {
			doc.NextMarker = marker(all[i-1].Name)
			break
		}
		one := listedContainer{Name: c.Name, Properties: containerProperties{LastModified: httpTime(c.Modified), Etag: c.ETag,
			LeaseStatus: "unlocked", LeaseState: "available"}}
		if p.metadata {
			one.Metadata = c.Metadata
		}
		doc.Containers.Container = append(doc.Containers.Container, one)
	}
	return xmlAnswer(q, doc)
}

func xmlAnswer(q *web.Request, doc any) (web.Answer, *files.BlobError) {
	text, err := xml.Marshal(doc)
	if err != nil {
		return web.Answer{}, blobInternal
	}
	a := answer(q, http.StatusOK)
	a.Header.Set("Content-Type", "application/xml")
	a.Body = append([]byte(xml.Header), text...)
	return a, nil
}
