package blobfront

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// maxAnswer is how much of a file one answer may have, in bytes. A block can be in a file many
// times, so a small store can have a large file.
const maxAnswer = 256 << 20

// getBlob handles Get Blob and Get Blob Properties.
func getBlob(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	b, ok := t.store.Get(t.name)
	if !ok {
		return web.Answer{}, files.BlobNotFound
	}
	if bad := checkRead(q, b.ETag, b.Stored); bad != nil {
		return web.Answer{}, bad
	}
	a := answer(q, http.StatusOK)
	setProperties(q, &a, &b)
	a.Header.Set("Accept-Ranges", "bytes")
	a.Header.Set("x-ms-blob-type", "BlockBlob")
	a.Header.Set("x-ms-server-encrypted", "true")
	a.Header.Set("x-ms-lease-status", "unlocked")
	a.Header.Set("x-ms-lease-state", "available")
	setVersion(&a, b.ETag, b.Stored)
	setMetadataHeaders(&a, b.Metadata)
	if b.MD5 != nil {
		a.Header.Set("Content-MD5", base64.StdEncoding.EncodeToString(b.MD5))
	}
	if q.Method == http.MethodHead {
		a.Header.Set("Content-Length", strconv.FormatInt(b.Size, 10))
		return a, nil
	}
	want := q.Header.Get("x-ms-range")
	if want == "" {
		want = q.Header.Get("Range")
	}
	from, to, part, bad := parseRange(want, b.Size)
	if bad != nil {
		return web.Answer{}, bad
	}
	if part {
		a.Status = http.StatusPartialContent
		a.Header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, b.Size))
		if sum := a.Header.Get("Content-MD5"); sum != "" {
			a.Header.Del("Content-MD5")
			a.Header.Set("x-ms-blob-content-md5", sum)
		}
	}
	a.Body, bad = contentOf(&b, from, to)
	return a, bad
}

// parseRange returns the bytes that a request wants: those from an index up to another. part is
// false for a request for the whole file.
func parseRange(text string, size int64) (from, to int64, part bool, bad *files.BlobError) {
	if text == "" {
		return 0, size, false, nil
	}
	first, last, ok := strings.Cut(strings.TrimPrefix(text, "bytes="), "-")
	from, err := strconv.ParseInt(first, 10, 64)
	if !ok || err != nil || !strings.HasPrefix(text, "bytes=") {
		return 0, 0, false, blobBadHeader
	}
	to = size - 1
	if last != "" {
		if to, err = strconv.ParseInt(last, 10, 64); err != nil || to < from {
			return 0, 0, false, blobBadHeader
		}
	}
	if from < 0 || from >= size {
		return 0, 0, false, blobBadRange
	}
	return from, min(to, size-1) + 1, true, nil
}

func contentOf(b *hubdata.Blob, from, to int64) ([]byte, *files.BlobError) {
	if to-from > maxAnswer {
		return nil, blobLongAnswer
	}
	out := make([]byte, 0, to-from)
	for _, part := range b.Blocks {
		if part.Content == nil && part.Size > 0 {
			return nil, blobNoContent
		}
		if from < part.Size && to > 0 {
			out = append(out, part.Content[max(from, 0):min(to, part.Size)]...)
		}
		from, to = from-part.Size, to-part.Size
	}
	return out, nil
}

func deleteBlob(q *web.Request, t *target) (web.Answer, *files.BlobError) {
	when, bad := changeCondition(q)
	if bad == nil {
		bad = t.store.Delete(t.name, when)
	}
	a := answer(q, http.StatusAccepted)
	a.Header.Set("x-ms-delete-type-permanent", "true")
	return a, bad
}
