package testbroker

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
)

// putBlob is Put Blob, Put Block or Put Block List.
func putBlob(q *httpRequest) httpAnswer {
	name := q.blobName()
	if bad := q.authorizeBlob("w"); bad != nil {
		return q.failBlob(bad)
	}
	if a, over := q.blobFaults(); over {
		return a
	}
	var a httpAnswer
	var bad *blobError
	switch blobOperation(q) {
	case PutBlob:
		a, bad = q.putWhole(name)
	case PutBlock:
		a, bad = q.putBlock(name)
	case PutBlockList:
		a, bad = q.putList(name)
	default:
		bad = blobBadQuery
	}
	switch bad {
	case nil:
		q.hub.changed.wake()
		return a
	case blobNoAnswer:
		return httpAnswer{way: wayNone}
	}
	return q.failBlob(bad)
}

// blobName is that of the file that the request is for.
func (q *httpRequest) blobName() string { return q.vars["device"] + "/" + q.vars["name"] }

var blobOperations = map[string]BlobOperation{"": PutBlob, "block": PutBlock, "blocklist": PutBlockList}

// blobOperation is what the request wants of the store; BlobAny if that is nothing that the store
// does.
func blobOperation(q *httpRequest) BlobOperation {
	if q.Method == http.MethodPut {
		return blobOperations[q.query.Get("comp")]
	}
	return GetBlob
}

// putWhole stores a file that comes in one go.
func (q *httpRequest) putWhole(name string) (httpAnswer, *blobError) {
	switch kind := q.Header.Get("x-ms-blob-type"); kind {
	case "BlockBlob":
	case "":
		return httpAnswer{}, blobMissingHeader
	case "AppendBlob", "PageBlob":
		return httpAnswer{}, blobNoHeader
	default:
		return httpAnswer{}, blobBadHeader
	}
	file, bad := q.newFile(name)
	if bad != nil {
		return httpAnswer{}, bad
	}
	part, sum, bad := q.receive("", maxPutBlob(q.storageVersion()))
	if bad != nil {
		return httpAnswer{}, bad
	}
	if file.MD5 == nil {
		file.MD5 = sum
	}
	file.Blocks = []BlobBlock{part}
	return q.created(sum), q.hub.uploads.store.put(file)
}

// putBlock stores a block.
func (q *httpRequest) putBlock(name string) (httpAnswer, *blobError) {
	id := q.query.Get("blockid")
	raw, err := base64.StdEncoding.DecodeString(id)
	switch {
	case id == "":
		return httpAnswer{}, blobMissingQuery
	case err != nil || len(raw) > 64 || len(raw) == 0:
		return httpAnswer{}, blobBadID
	case q.ContentLength == 0:
		return httpAnswer{}, blobBadHeader
	}
	part, sum, bad := q.receive(id, maxPutBlock(q.storageVersion()))
	if bad == nil {
		bad = q.hub.uploads.store.stage(name, part)
	}
	return q.created(sum), bad
}

// putList makes a file of blocks.
func (q *httpRequest) putList(name string) (httpAnswer, *blobError) {
	file, bad := q.newFile(name)
	if bad != nil {
		return httpAnswer{}, bad
	}
	if q.ContentLength < 0 {
		return httpAnswer{}, blobNoLength
	}
	const perBlock, most = 128, 64 << 10 // bytes for an entry of the list, and for all that is around
	body, err := io.ReadAll(io.LimitReader(q.Body, int64(q.hub.uploads.opt.MaxBlocks)*perBlock+most))
	if err != nil {
		return httpAnswer{}, blobCutOff
	}
	sum := md5.Sum(body)
	if bad := q.checkMD5(sum[:]); bad != nil {
		return httpAnswer{}, bad
	}
	list, err := parseBlockList(body)
	switch {
	case err != nil:
		return httpAnswer{}, blobBadXML
	case len(list) > q.hub.uploads.opt.MaxBlocks:
		return httpAnswer{}, blobListTooLong
	}
	return q.created(nil), q.hub.uploads.store.commit(file, list)
}

// parseBlockList reads
//
//	<BlockList> ( <Committed> | <Uncommitted> | <Latest> ) ID ... </BlockList>
func parseBlockList(body []byte) ([]listedBlock, error) {
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
	list := make([]listedBlock, 0, len(doc.Entries))
	for _, e := range doc.Entries {
		b := listedBlock{id: strings.TrimSpace(e.ID)}
		switch e.XMLName.Local {
		case "Committed":
			b.stored = true
		case "Uncommitted":
			b.staged = true
		case "Latest":
			b.both = true
		default:
			return nil, fmt.Errorf("element %q", e.XMLName.Local)
		}
		list = append(list, b)
	}
	return list, nil
}

// newFile is a file as the request's headers describe it.
func (q *httpRequest) newFile(name string) (Blob, *blobError) {
	file := Blob{Name: name, ContentType: q.Header.Get("x-ms-blob-content-type"), Stored: q.hub.now()}
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
func (q *httpRequest) receive(id string, limit int64) (part BlobBlock, sum []byte, bad *blobError) {
	switch {
	case q.ContentLength < 0:
		return part, nil, blobNoLength
	case q.ContentLength > limit:
		return part, nil, blobTooLarge
	case q.Header.Get("x-ms-content-crc64") != "":
		return part, nil, blobNoHeader
	}
	body := io.Reader(q.Body)
	if in := q.takeRoute(CutBlobBody); in != nil {
		io.CopyN(io.Discard, body, q.ContentLength/2)
		q.cut(in)
		return part, nil, blobNoAnswer
	}
	if in := q.takeRoute(DamageBlob); in != nil {
		q.happened(in)
		body = &damager{Reader: body}
	}
	long, short := sha256.New(), md5.New()
	to := []io.Writer{long, short}
	var kept *bytes.Buffer
	if !q.hub.uploads.opt.Digest {
		kept = bytes.NewBuffer(make([]byte, 0, min(q.ContentLength, 1<<20)))
		to = append(to, kept)
	}
	n, err := io.Copy(io.MultiWriter(to...), body)
	if err != nil || n != q.ContentLength {
		return part, nil, blobCutOff
	}
	sum = short.Sum(nil)
	if bad := q.checkMD5(sum); bad != nil {
		return part, nil, bad
	}
	var content []byte
	if kept != nil {
		content = kept.Bytes()
	}
	return newBlock(id, n, [sha256.Size]byte(long.Sum(nil)), content), sum, nil
}

// A damager changes the first byte.
type damager struct {
	io.Reader
	done bool
}

// Read reads.
func (d *damager) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if n > 0 && !d.done {
		p[0] ^= 1
		d.done = true
	}
	return n, err
}

// checkMD5 compares the hash of what came with that of what was sent, if the client says it.
func (q *httpRequest) checkMD5(sum []byte) *blobError {
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

// created is the answer to what was stored.
func (q *httpRequest) created(sum []byte) httpAnswer {
	a := httpAnswer{status: http.StatusCreated, header: make(http.Header)}
	a.header.Set("x-ms-request-id", q.track())
	a.header.Set("x-ms-version", q.storageVersion())
	a.header.Set("x-ms-request-server-encrypted", "true")
	if sum != nil {
		a.header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum))
	}
	if q.query.Get("comp") != "block" {
		now := q.hub.now().UTC()
		a.header.Set("ETag", `"0x`+strings.ToUpper(strconv.FormatInt(now.UnixNano(), 16))+`"`)
		a.header.Set("Last-Modified", now.Format(http.TimeFormat))
	}
	return a
}

// getBlob is Get Blob or Get Blob Properties.
func getBlob(q *httpRequest) httpAnswer {
	name := q.blobName()
	if bad := q.authorizeBlob("r"); bad != nil {
		return q.failBlob(bad)
	}
	b, ok := q.hub.uploads.store.get(name)
	if !ok {
		return q.failBlob(blobNotFound)
	}
	a := httpAnswer{status: http.StatusOK, header: make(http.Header)}
	a.header.Set("Content-Type", b.ContentType)
	a.header.Set("x-ms-blob-type", "BlockBlob")
	a.header.Set("x-ms-request-id", q.track())
	a.header.Set("x-ms-version", q.storageVersion())
	a.header.Set("Last-Modified", b.Stored.UTC().Format(http.TimeFormat))
	if b.MD5 != nil {
		a.header.Set("Content-MD5", base64.StdEncoding.EncodeToString(b.MD5))
	}
	if q.Method == http.MethodHead {
		return a
	}
	body, err := b.Bytes()
	if err != nil {
		return q.failBlob(blobNoContent)
	}
	a.body = body
	return a
}

// authorizeBlob checks the upload URI and what every request to the store must have.
func (q *httpRequest) authorizeBlob(right string) *blobError {
	if v := q.Header.Get("x-ms-version"); v != "" {
		if _, err := time.Parse(time.DateOnly, v); err != nil {
			return blobBadHeader
		}
	}
	if !validBlobName(q.blobName()) {
		return blobBadName
	}
	bad := q.hub.uploads.store.keys.check(q.blobName(), q.query, right, q.hub.now())
	if bad != nil {
		q.conn.refused(q.Request, identity{}, bad.status, errors.New(bad.code))
	}
	return bad
}

// storageVersion is the version of the store that the client asks for, or else its upload URI.
func (q *httpRequest) storageVersion() string {
	if v := q.Header.Get("x-ms-version"); v != "" {
		return v
	}
	if v := q.query.Get("sv"); v != "" {
		return v
	}
	return sasVersion
}

// maxPutBlock and maxPutBlob are the limits of the service in bytes, which grew with its versions.
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

// track gives the request a name.
func (q *httpRequest) track() string {
	return fmt.Sprintf("%d-%d", q.c.number, q.conn.front.refusals.Add(1))
}

// blobFaults lets faults have their way with a request to the store that was found good. If over,
// it is answered.
func (q *httpRequest) blobFaults() (a httpAnswer, over bool) {
	if in := q.takeRoute(ExpireUpload); in != nil {
		q.happened(in)
		q.hub.expireUpload(q.query.Get("si"))
		q.hub.changed.wake()
		return q.failBlob(blobExpired), true
	}
	if in := q.takeRoute(SlowBlob); in != nil {
		q.happened(in)
		if !q.sleep(in.fault.Delay) {
			return httpAnswer{way: wayNone}, true
		}
	}
	return httpAnswer{}, false
}

// blobRoutes are the requests to the store.
var blobRoutes = []httpRoute{
	{kind: RouteBlob, method: http.MethodPut, path: container + "/{device}/{name...}", host: anyHost, open: true,
		do: putBlob, fails: failRequest, blob: blobOperation},
	{kind: RouteBlob, method: http.MethodGet, path: container + "/{device}/{name...}", host: anyHost, open: true,
		do: getBlob, fails: failRequest, blob: blobOperation},
	{kind: RouteBlob, method: http.MethodHead, path: container + "/{device}/{name...}", host: anyHost, open: true,
		do: getBlob, fails: failRequest, blob: blobOperation},
}

// anyHost is for the store, which is found under whatever name a test gives it.
func anyHost(*Hub, string) bool { return true }
