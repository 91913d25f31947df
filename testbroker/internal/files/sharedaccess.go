package files

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/url"
	"strings"
	"sync"
	"time"
)

// blobKeys signs and checks requests to the storage account: upload URIs, which are service SAS for
// one blob of version 2018-03-28, SAS of containers, and requests with the account's key.
type blobKeys struct {
	key [64]byte

	mu   sync.Mutex
	good map[string]bool // correlation ids of uploads whose URIs are not revoked
}

const (
	SasVersion       = "2018-03-28"
	containerVersion = "2020-12-06" // of the SAS that the hub makes for containers
	account          = "store"
	sasTimeForm      = "2006-01-02T15:04:05Z"
)

// AccountPath is the first part of the path of each container but that of the uploads.
const AccountPath = account

// sasTimes are the forms of times in a SAS.
var sasTimes = []string{sasTimeForm, "2006-01-02T15:04Z", time.DateOnly}

func (k *blobKeys) init() {
	rand.Read(k.key[:]) // never fails
	k.good = make(map[string]bool)
}

// Sign returns the query of an upload URI, with the question mark. Its identifier is the upload's
// correlation id, so the URI can be revoked.
func (k *blobKeys) Sign(blob, correlation string, expires time.Time) string {
	q := url.Values{"sv": {SasVersion}, "sr": {"b"}, "sp": {"rw"}, "se": {expires.UTC().Format(sasTimeForm)},
		"si": {correlation}}
	q.Set("sig", k.signature(Container, blob, q))
	return "?" + q.Encode()
}

// signContainer returns the query of the URL of a container, with all rights to its blobs.
func (k *blobKeys) signContainer(container string, expires time.Time) string {
	q := url.Values{"sv": {containerVersion}, "sr": {"c"}, "sp": {"racwdl"}, "se": {expires.UTC().Format(sasTimeForm)}}
	q.Set("sig", k.signature(container, "", q))
	return q.Encode()
}

// SignText signs text with the account's key.
func (k *blobKeys) SignText(text string) string {
	mac := hmac.New(sha256.New, k.key[:])
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// signature signs the fields of a SAS, which depend on its version, for a container or a blob. It
// returns none if a field contains a line break: the text would be that of another SAS as well.
func (k *blobKeys) signature(container, blob string, q url.Values) string {
	resource := "/blob/" + account + "/" + container
	if q.Get("sr") == "b" {
		resource += "/" + blob
	}
	fields := []string{q.Get("sp"), q.Get("st"), q.Get("se"), resource, q.Get("si"), q.Get("sip"), q.Get("spr"),
		q.Get("sv")}
	for _, more := range []struct{ since, field string }{
		{"2018-11-09", "sr"}, {"2018-11-09", "snapshot"}, {"2020-12-06", "ses"}, {"", "rscc"}, {"", "rscd"}, {"", "rsce"},
		{"", "rscl"}, {"", "rsct"},
	} {
		if q.Get("sv") >= more.since {
			fields = append(fields, q.Get(more.field))
		}
	}
	text := strings.Join(fields, "\n")
	if strings.Count(text, "\n") != len(fields)-1 {
		return ""
	}
	return k.SignText(text)
}

// Check returns the rights that a SAS grants to a blob, or the refusal.
func (k *blobKeys) Check(container, blob string, q url.Values, secure bool, now time.Time) (string, *BlobError) {
	sig := q.Get("sig")
	if sig == "" {
		return "", BlobNoAuthentication
	}
	starts, expires, ok := sasPeriod(q)
	k.mu.Lock()
	good := q.Get("si") == "" || k.good[q.Get("si")]
	k.mu.Unlock()
	switch {
	case !ok || q.Get("sr") != "b" && q.Get("sr") != "c" || q.Get("sr") == "b" && blob == "":
		return "", BlobBadSignature
	case q.Get("sip") != "" || q.Get("sv") == "" || !hmac.Equal([]byte(sig), []byte(k.signature(container, blob, q))):
		return "", BlobBadSignature // the hub checks no ranges of addresses, so it refuses them
	case !good || now.Before(starts) || !now.Before(expires):
		return "", BlobExpired
	case q.Get("spr") == "https" && !secure:
		return "", blobWrongProtocol
	}
	return q.Get("sp"), nil
}

// sasPeriod returns when a SAS is valid.
func sasPeriod(q url.Values) (starts, expires time.Time, ok bool) {
	read := func(name string) (t time.Time) {
		for _, form := range sasTimes {
			if t, err := time.Parse(form, q.Get(name)); err == nil {
				return t
			}
		}
		return t
	}
	starts, expires = read("st"), read("se")
	return starts, expires, !expires.IsZero() && (q.Get("st") == "" || !starts.IsZero())
}

// allow makes the URI of an upload valid until it expires.
func (k *blobKeys) allow(correlation string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.good[correlation] = true
}

// revoke makes the URI of an upload invalid.
func (k *blobKeys) revoke(correlation string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.good, correlation)
}
