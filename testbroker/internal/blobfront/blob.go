package blobfront

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// putWhole stores a file sent in a single request.
func putWhole(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	switch kind := q.Header.Get("x-ms-blob-type"); kind {
	case "BlockBlob":
	case "":
		return web.Answer{}, blobMissingHeader
	case "AppendBlob", "PageBlob":
		return web.Answer{}, blobNoHeader
	default:
		return web.Answer{}, blobBadHeader
	}
	file, when, bad := newFile(q, t, true)
	if bad != nil {
		return web.Answer{}, bad
	}
	part, sum, release, bad := receive(q, t, "", maxPutBlob(storageVersion(q)))
	if bad != nil {
		return web.Answer{}, bad
	}
	defer release()
	if file.MD5 == nil {
		file.MD5 = sum
	}
	file.Blocks = []hubdata.BlobBlock{part}
	file, bad = t.store.Put(file, when)
	return created(q, &file, sum), bad
}

// maxBlockID is the maximum length of a block's ID before its encoding, in bytes. A decoder of
// base64 ignores line breaks, so the length of the text has a limit too.
const maxBlockID = 64

func putBlock(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	id := q.Query.Get("blockid")
	raw, err := base64.StdEncoding.DecodeString(id)
	switch {
	case id == "":
		return web.Answer{}, blobMissingQuery
	case err != nil || len(raw) > maxBlockID || len(raw) == 0 || len(id) > base64.StdEncoding.EncodedLen(maxBlockID):
		return web.Answer{}, blobBadID
	case q.ContentLength == 0:
		return web.Answer{}, blobBadHeader
	}
	id = strings.Clone(id) // without the rest of the request's URI
	part, sum, release, bad := receive(q, t, id, maxPutBlock(storageVersion(q)))
	if bad != nil {
		return web.Answer{}, bad
	}
	defer release()
	return created(q, nil, sum), t.store.Stage(t.name, part)
}

// putList makes a file of blocks.
func putList(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	file, when, bad := newFile(q, t, false)
	if bad != nil {
		return web.Answer{}, bad
	}
	if q.ContentLength < 0 {
		return web.Answer{}, blobNoLength
	}
	const perBlock, most = 128, 64 << 10 // bytes for each list entry, and for everything around the entries
	body, err := io.ReadAll(io.LimitReader(q.Body, int64(q.Hub.Files.Uploads.Opt.MaxBlocks)*perBlock+most))
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
	case len(list) > q.Hub.Files.Uploads.Opt.MaxBlocks:
		return web.Answer{}, blobListTooLong
	}
	file, bad = t.store.Commit(file, list, when)
	return created(q, &file, nil), bad
}

// parseBlockList parses
//
//	<BlockList> ( <Committed> | <Uncommitted> | <Latest> ) ID ... </BlockList>
func parseBlockList(body []byte) ([]files.ListedBlock, error) {
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
	list := make([]files.ListedBlock, 0, len(doc.Entries))
	for _, e := range doc.Entries {
		b := files.ListedBlock{ID: strings.TrimSpace(e.ID)}
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

// newFile returns a file with the properties in the request's headers, and the condition of its
// storage. whole: the body is the file.
func newFile(q *web.Request, t *target, whole bool) (file hubdata.Blob, when files.BlobCheck, bad *files.BlobError) {
	file = hubdata.Blob{Name: t.name, Stored: q.Hub.Now()}
	if bad = readProperties(q, &file, whole); bad != nil {
		return file, nil, bad
	}
	if text := q.Header.Get("x-ms-blob-content-md5"); text != "" {
		sum, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(sum) != md5.Size {
			return file, nil, blobBadMD5
		}
		file.MD5 = sum
	}
	if file.Metadata, bad = metadataOf(q); bad != nil {
		return file, nil, bad
	}
	when, bad = writeCondition(q, t)
	return file, when, bad
}

// receive reads the body of a file or block, with room for it in the store until release.
func receive(q *web.Request, t *target, id string, limit int64) (part hubdata.BlobBlock, sum []byte, release func(),
	bad *files.BlobError) {
	switch {
	case q.ContentLength < 0:
		return part, nil, nil, blobNoLength
	case q.ContentLength > limit:
		return part, nil, nil, blobTooLarge
	case q.Header.Get("x-ms-content-crc64") != "":
		return part, nil, nil, blobNoHeader
	}
	if release, bad = t.store.Reserve(q.ContentLength + maxMetadata); bad != nil {
		return part, nil, nil, bad
	}
	if part, sum, bad = readPart(q, t, id); bad != nil {
		release()
		return part, nil, nil, bad
	}
	return part, sum, release, nil
}

// readPart reads a body of the stated length.
func readPart(q *web.Request, t *target, id string) (part hubdata.BlobBlock, sum []byte, bad *files.BlobError) {
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
	if t.container != files.Container || !q.Hub.Files.Uploads.Opt.Digest {
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
		content = bytes.Clone(kept.Bytes()) // without the room that the buffer has left
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
func checkMD5(q *web.Request, sum []byte) *files.BlobError {
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

// answer returns an answer without a body, with the headers that each answer has.
func answer(q *web.Request, status int) web.Answer {
	a := web.Answer{Status: status, Header: make(http.Header)}
	a.Header.Set("x-ms-request-id", track(q))
	a.Header.Set("x-ms-version", storageVersion(q))
	if id := q.Header.Get("x-ms-client-request-id"); id != "" && len(id) <= 1024 {
		a.Header.Set("x-ms-client-request-id", id)
	}
	return a
}

// setVersion adds the ETag and the time of a change to an answer.
func setVersion(a *web.Answer, etag string, changed time.Time) {
	a.Header.Set("ETag", `"`+etag+`"`)
	a.Header.Set("Last-Modified", changed.UTC().Format(http.TimeFormat))
}

// created returns the answer to a request that stored a file, or for nil a block.
func created(q *web.Request, file *hubdata.Blob, sum []byte) web.Answer {
	a := answer(q, http.StatusCreated)
	a.Header.Set("x-ms-request-server-encrypted", "true")
	if sum != nil {
		a.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(sum))
	}
	if file != nil {
		setVersion(&a, file.ETag, file.Stored)
	}
	return a
}

// storageVersion returns the storage API version of the request header, or else of the upload URI.
func storageVersion(q *web.Request) string {
	if v := q.Header.Get("x-ms-version"); v != "" {
		return v
	}
	if v := q.Query.Get("sv"); v != "" {
		return v
	}
	return files.SasVersion
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
