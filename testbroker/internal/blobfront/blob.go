package blobfront

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// putBlob handles Put Blob, Put Block and Put Block List.
func putBlob(q *web.Request) web.Answer {
	name := blobName(q)
	if bad := authorizeBlob(q, "w"); bad != nil {
		return failBlob(q, bad)
	}
	if a, over := blobFaults(q); over {
		return a
	}
	var a web.Answer
	var bad *hub.BlobError
	switch blobOperation(q) {
	case fault.PutBlob:
		a, bad = putWhole(q, name)
	case fault.PutBlock:
		a, bad = putBlock(q, name)
	case fault.PutBlockList:
		a, bad = putList(q, name)
	default:
		bad = blobBadQuery
	}
	switch bad {
	case nil:
		q.Hub.Changed.Wake()
		return a
	case blobNoAnswer:
		return web.Answer{Delivery: web.DeliverNothing}
	}
	return failBlob(q, bad)
}

// blobName returns the name of the request's file.
func blobName(q *web.Request) string { return q.Vars["device"] + "/" + q.Vars["name"] }

var blobOperations = map[string]fault.BlobOperation{"": fault.PutBlob, "block": fault.PutBlock,
	"blocklist": fault.PutBlockList}

// blobOperation returns the request's operation; BlobAny if the store does not support it.
func blobOperation(q *web.Request) fault.BlobOperation {
	if q.Method == http.MethodPut {
		return blobOperations[q.Query.Get("comp")]
	}
	return fault.GetBlob
}

// putWhole stores a file sent in a single request.
func putWhole(q *web.Request, name string) (web.Answer, *hub.BlobError) {
	switch kind := q.Header.Get("x-ms-blob-type"); kind {
	case "BlockBlob":
	case "":
		return web.Answer{}, blobMissingHeader
	case "AppendBlob", "PageBlob":
		return web.Answer{}, blobNoHeader
	default:
		return web.Answer{}, blobBadHeader
	}
	file, bad := newFile(q, name)
	if bad != nil {
		return web.Answer{}, bad
	}
	part, sum, bad := receive(q, "", maxPutBlob(storageVersion(q)))
	if bad != nil {
		return web.Answer{}, bad
	}
	if file.MD5 == nil {
		file.MD5 = sum
	}
	file.Blocks = []hubdata.BlobBlock{part}
	return created(q, sum), q.Hub.UploadTable.Store.Put(file)
}

// putBlock stages a block.
func putBlock(q *web.Request, name string) (web.Answer, *hub.BlobError) {
	id := q.Query.Get("blockid")
	raw, err := base64.StdEncoding.DecodeString(id)
	switch {
	case id == "":
		return web.Answer{}, blobMissingQuery
	case err != nil || len(raw) > 64 || len(raw) == 0:
		return web.Answer{}, blobBadID
	case q.ContentLength == 0:
		return web.Answer{}, blobBadHeader
	}
	part, sum, bad := receive(q, id, maxPutBlock(storageVersion(q)))
	if bad == nil {
		bad = q.Hub.UploadTable.Store.Stage(name, part)
	}
	return created(q, sum), bad
}

// putList makes a file of blocks.
func putList(q *web.Request, name string) (web.Answer, *hub.BlobError) {
	file, bad := newFile(q, name)
	if bad != nil {
		return web.Answer{}, bad
	}
	if q.ContentLength < 0 {
		return web.Answer{}, blobNoLength
	}
	const perBlock, most = 128, 64 << 10 // bytes for each list entry, and for everything around the entries
	body, err := io.ReadAll(io.LimitReader(q.Body, int64(q.Hub.UploadTable.Opt.MaxBlocks)*perBlock+most))
	if err != nil {
		return web.Answer{}, blobCutOff
	}
	sum := md5.Sum(body)
	if bad := checkMD5(q, sum[:]); bad != nil {
		return web.Answer{}, bad
	}
	list, err := parseBlockList(body)
	switch {
	case err != nil:
		return web.Answer{}, blobBadXML
	case len(list) > q.Hub.UploadTable.Opt.MaxBlocks:
		return web.Answer{}, blobListTooLong
	}
	return created(q, nil), q.Hub.UploadTable.Store.Commit(file, list)
}

// parseBlockList parses
//
//	<BlockList> ( <Committed> | <Uncommitted> | <Latest> ) ID ... </BlockList>
func parseBlockList(body []byte) ([]hub.ListedBlock, error) {
	var doc struct {
		XMLName xml.Name `xml:"BlockList"`
		Entries []struct {
			XMLName xml.Name
			ID      string `xml:",chardata"`
		} `xml:",any"`
	}
	if err := xml.Unmarshal(body, &doc); err != nil {
		return nil, err
	}
	list := make([]hub.ListedBlock, 0, len(doc.Entries))
	for _, e := range doc.Entries {
		b := hub.ListedBlock{ID: strings.TrimSpace(e.ID)}
		switch e.XMLName.Local {
		case "Committed":
			b.Stored = true
		case "Uncommitted":
			b.Staged = true
		case "Latest":
			b.Both = true
		default:
			return nil, fmt.Errorf("element %q", e.XMLName.Local)
		}
		list = append(list, b)
	}
	return list, nil
}

// newFile returns a file with the properties in the request's headers.
func newFile(q *web.Request, name string) (hubdata.Blob, *hub.BlobError) {
	file := hubdata.Blob{Name: name, ContentType: q.Header.Get("x-ms-blob-content-type"), Stored: q.Hub.Now()}
	if file.ContentType == "" {
		file.ContentType = "application/octet-stream"
	}
	if text := q.Header.Get("x-ms-blob-content-md5"); text != "" {
		sum, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(sum) != md5.Size {
			return file, blobBadMD5
		}
		file.MD5 = sum
	}
	return file, nil
}

// receive reads the body of a file or block.
func receive(q *web.Request, id string, limit int64) (part hubdata.BlobBlock, sum []byte, bad *hub.BlobError) {
	switch {
	case q.ContentLength < 0:
		return part, nil, blobNoLength
	case q.ContentLength > limit:
		return part, nil, blobTooLarge
	case q.Header.Get("x-ms-content-crc64") != "":
		return part, nil, blobNoHeader
	}
	body := io.Reader(q.Body)
	if in := q.TakeRoute(fault.CutBlobBody); in != nil {
		io.CopyN(io.Discard, body, q.ContentLength/2)
		q.Cut(in)
		return part, nil, blobNoAnswer
	}
	if in := q.TakeRoute(fault.DamageBlob); in != nil {
		q.Happened(in)
		body = &damager{Reader: body}
	}
	long, short := sha256.New(), md5.New()
	to := []io.Writer{long, short}
	var kept *bytes.Buffer
	if !q.Hub.UploadTable.Opt.Digest {
		kept = bytes.NewBuffer(make([]byte, 0, min(q.ContentLength, 1<<20)))
		to = append(to, kept)
	}
	n, err := io.Copy(io.MultiWriter(to...), body)
	if err != nil || n != q.ContentLength {
		return part, nil, blobCutOff
	}
	sum = short.Sum(nil)
	if bad := checkMD5(q, sum); bad != nil {
		return part, nil, bad
	}
	var content []byte
	if kept != nil {
		content = kept.Bytes()
	}
	return hubdata.BlobBlock{ID: id, Size: n, SHA256: [sha256.Size]byte(long.Sum(nil)), Content: content}, sum, nil
}

// A damager changes the first byte that it reads.
type damager struct {
	io.Reader
	done bool
}

// Read reads, and changes the first byte.
func (d *damager) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if n > 0 && !d.done {
		p[0] ^= 1
		d.done = true
	}
	return n, err
}

// checkMD5 compares the hash of the received body with the client's, if it states one.
func checkMD5(q *web.Request, sum []byte) *hub.BlobError {
	text := q.Header.Get("Content-MD5")
	if text == "" {
		return nil
	}
	want, err := base64.StdEncoding.DecodeString(text)
	switch {
	case err != nil || len(want) != md5.Size:
		return blobBadMD5
	case !bytes.Equal(want, sum):
		return blobDamaged
	}
	return nil
}

// created returns the answer to a request that stored something.
func created(q *web.Request, sum []byte) web.Answer {
	a := web.Answer{Status: http.StatusCreated, Header: make(http.Header)}
	a.Header.Set("x-ms-request-id", track(q))
	a.Header.Set("x-ms-version", storageVersion(q))
	a.Header.Set("x-ms-request-server-encrypted", "true")
	if sum != nil {
		a.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum))
	}
	if q.Query.Get("comp") != "block" {
		now := q.Hub.Now().UTC()
		a.Header.Set("ETag", `"0x`+strings.ToUpper(strconv.FormatInt(now.UnixNano(), 16))+`"`)
		a.Header.Set("Last-Modified", now.Format(http.TimeFormat))
	}
	return a
}

// getBlob handles Get Blob and Get Blob Properties.
func getBlob(q *web.Request) web.Answer {
	name := blobName(q)
	if bad := authorizeBlob(q, "r"); bad != nil {
		return failBlob(q, bad)
	}
	b, ok := q.Hub.UploadTable.Store.Get(name)
	if !ok {
		return failBlob(q, blobNotFound)
	}
	a := web.Answer{Status: http.StatusOK, Header: make(http.Header)}
	a.Header.Set("Content-Type", b.ContentType)
	a.Header.Set("x-ms-blob-type", "BlockBlob")
	a.Header.Set("x-ms-request-id", track(q))
	a.Header.Set("x-ms-version", storageVersion(q))
	a.Header.Set("Last-Modified", b.Stored.UTC().Format(http.TimeFormat))
	if b.MD5 != nil {
		a.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(b.MD5))
	}
	if q.Method == http.MethodHead {
		return a
	}
	body, err := b.Bytes()
	if err != nil {
		return failBlob(q, blobNoContent)
	}
	a.Body = body
	return a
}

// authorizeBlob checks the upload URI and the headers required of every request to the store.
func authorizeBlob(q *web.Request, right string) *hub.BlobError {
	if v := q.Header.Get("x-ms-version"); v != "" {
		if _, err := time.Parse(time.DateOnly, v); err != nil {
			return blobBadHeader
		}
	}
	if !hub.ValidBlobName(blobName(q)) {
		return blobBadName
	}
	bad := q.Hub.UploadTable.Store.Keys.Check(blobName(q), q.Query, right, q.Hub.Now())
	if bad != nil {
		q.Conn.Refused(q.Request, hub.Identity{}, bad.Status, errors.New(bad.Code))
	}
	return bad
}

// storageVersion returns the storage API version of the request header, or else of the upload URI.
func storageVersion(q *web.Request) string {
	if v := q.Header.Get("x-ms-version"); v != "" {
		return v
	}
	if v := q.Query.Get("sv"); v != "" {
		return v
	}
	return hub.SasVersion
}

// maxPutBlock and maxPutBlob return the service's limits in bytes, which depend on the API version.
func maxPutBlock(version string) int64 {
	switch {
	case version >= "2019-12-12":
		return 4000 << 20
	case version >= "2016-05-31":
		return 100 << 20
	}
	return 4 << 20
}

func maxPutBlob(version string) int64 {
	switch {
	case version >= "2019-12-12":
		return 5000 << 20
	case version >= "2016-05-31":
		return 256 << 20
	}
	return 64 << 20
}

// track returns a unique name for the request.
func track(q *web.Request) string {
	return fmt.Sprintf("%d-%d", q.C.Number, q.Conn.Front.Refusals.Add(1))
}

// blobFaults applies the faults of a valid request to the store. If over is true, a is the answer.
func blobFaults(q *web.Request) (a web.Answer, over bool) {
	if in := q.TakeRoute(fault.ExpireUpload); in != nil {
		q.Happened(in)
		q.Hub.ExpireUpload(q.Query.Get("si"))
		q.Hub.Changed.Wake()
		return failBlob(q, hub.BlobExpired), true
	}
	if in := q.TakeRoute(fault.SlowBlob); in != nil {
		q.Happened(in)
		if !q.Sleep(in.Fault.Delay) {
			return web.Answer{Delivery: web.DeliverNothing}, true
		}
	}
	return web.Answer{}, false
}

// Routes are the routes of the store.
var Routes = []web.Route{
	{Kind: fault.RouteBlob, Method: http.MethodPut, Path: hub.Container + "/{device}/{name...}", Host: anyHost, Open: true,
		Do: putBlob, Fails: failRequest, Blob: blobOperation},
	{Kind: fault.RouteBlob, Method: http.MethodGet, Path: hub.Container + "/{device}/{name...}", Host: anyHost, Open: true,
		Do: getBlob, Fails: failRequest, Blob: blobOperation},
	{Kind: fault.RouteBlob, Method: http.MethodHead, Path: hub.Container + "/{device}/{name...}", Host: anyHost,
		Open: true,
		Do:   getBlob, Fails: failRequest, Blob: blobOperation},
}

// anyHost accepts every host name, because a test can give the store any name.
func anyHost(*hub.Hub, string) bool { return true }
