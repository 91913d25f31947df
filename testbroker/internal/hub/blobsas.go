package hub

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

// blobKeys signs and checks upload URIs. The signature is that of a service SAS for one blob,
// version 2018-03-28.
type blobKeys struct {
	key [32]byte

	mu   sync.Mutex
	good map[string]bool // correlation ids of uploads whose URIs are not revoked
}

const (
	SasVersion  = "2018-03-28"
	account     = "store"
	sasTimeForm = "2006-01-02T15:04:05Z"
)

func (k *blobKeys) init() {
	rand.Read(k.key[:]) // never fails
	k.good = make(map[string]bool)
}

// Sign returns the query of an upload URI, with the question mark. Its identifier is the upload's
// correlation id, so the URI can be revoked.
func (k *blobKeys) Sign(blob, correlation string, expires time.Time) string {
	q := url.Values{"sv": {SasVersion}, "sr": {"b"}, "sp": {"rw"}, "se": {expires.UTC().Format(sasTimeForm)},
		"si": {correlation}}
	q.Set("sig", k.signature(blob, q))
	return "?" + q.Encode()
}

// signature signs the fields for a blob.
func (k *blobKeys) signature(blob string, q url.Values) string {
	mac := hmac.New(sha256.New, k.key[:])
	mac.Write([]byte(strings.Join([]string{
		q.Get("sp"), q.Get("st"), q.Get("se"), "/blob/" + account + "/" + Container + "/" + blob, q.Get("si"), q.Get("sip"),
		q.Get("spr"), q.Get("sv"),
		q.Get("rscc"), q.Get("rscd"), q.Get("rsce"), q.Get("rscl"), q.Get("rsct"),
	}, "\n")))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// Check returns nil if a query grants a right to a blob, otherwise the refusal.
func (k *blobKeys) Check(blob string, q url.Values, right string, now time.Time) *BlobError {
	sig := q.Get("sig")
	if sig == "" {
		return BlobNoAuthentication
	}
	expires, err := time.Parse(sasTimeForm, q.Get("se"))
	k.mu.Lock()
	good := k.good[q.Get("si")]
	k.mu.Unlock()
	switch {
	case err != nil || q.Get("sr") != "b" || !hmac.Equal([]byte(sig), []byte(k.signature(blob, q))):
		return BlobBadSignature
	case !good || !now.Before(expires):
		return BlobExpired
	case !strings.Contains(q.Get("sp"), right):
		return blobNoRight
	}
	return nil
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
