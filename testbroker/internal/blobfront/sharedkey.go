package blobfront

import (
	"crypto/hmac"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/files"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// maxSkew is how far the date of a signed request may be from the hub's time.
const maxSkew = 15 * time.Minute

// signedHeaders are the headers in the signature of a request, in their order. The length of the
// body stands between the second and the third.
var signedHeaders = []string{"Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type",
	"Date", "If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range"}

// checkSharedKey checks the signature of a request with the account's key. Source: the page
// "Authorize with Shared Key" of the storage services' REST reference.
func checkSharedKey(q *web.Request, text string) *files.BlobError {
	name, signature, ok := strings.Cut(text, ":")
	if !ok || len(q.Header.Values("Authorization")) > 1 {
		return blobBadCredentials
	}
	date := q.Header.Get("x-ms-date")
	if date == "" {
		date = q.Header.Get("Date")
	}
	sent, err := http.ParseTime(date)
	want := q.Hub.Files.Uploads.Store.Keys.SignText(stringToSign(q))
	if err != nil || q.Hub.Now().Sub(sent).Abs() > maxSkew || name != files.AccountPath ||
		!hmac.Equal([]byte(signature), []byte(want)) {
		return files.BlobBadSignature
	}
	return nil
}

// stringToSign returns the text that the signature of a request is about.
func stringToSign(q *web.Request) string {
	lines := []string{q.Method}
	for _, name := range signedHeaders {
		v := q.Header.Get(name)
		switch {
		case name == "Content-Length":
			if v = strconv.FormatInt(q.ContentLength, 10); q.ContentLength <= 0 {
				v = ""
			}
		case name == "Date" && q.Header.Get("x-ms-date") != "":
			v = ""
		}
		lines = append(lines, v)
	}
	var own []string
	for name, values := range q.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			own = append(own, name+":"+strings.TrimSpace(strings.Join(values, ",")))
		}
	}
	slices.SortFunc(own, byName)
	resource := []string{"/" + files.AccountPath + q.Path()}
	var query []string
	for name, values := range q.Query {
		query = append(query, strings.ToLower(name)+":"+strings.Join(slices.Sorted(slices.Values(values)), ","))
	}
	slices.SortFunc(query, byName)
	return strings.Join(slices.Concat(lines, own, resource, query), "\n")
}

// byName compares lines of the form "name:value" by the name.
func byName(a, b string) int {
	a, _, _ = strings.Cut(a, ":")
	b, _, _ = strings.Cut(b, ":")
	return strings.Compare(a, b)
}
