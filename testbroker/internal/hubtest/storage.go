package hubtest

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
)

// A Storage is a client that signs requests with the key of a hub's storage account.
type Storage struct {
	*Poster
	Key []byte
}

// NewStorage returns a client of the storage account of a hub.
func NewStorage(t testing.TB, h *testbroker.Hub) *Storage {
	_, key, _ := strings.Cut(h.StorageConnectionString("hub"), "AccountKey=")
	key, _, _ = strings.Cut(key, ";")
	raw, err := base64.StdEncoding.DecodeString(key)
	require.NoError(t, err)
	return &Storage{NewPoster(t, h.Dial(testbroker.PortHTTP), nil, ""), raw}
}

// Request sends a signed request. It writes the text to sign as the service's documents have it.
func (s *Storage) Request(method, path, body string, header ...string) Reply {
	s.T.Helper()
	u, err := url.Parse(path)
	require.NoError(s.T, err)
	all := map[string]string{"x-ms-date": time.Now().UTC().Format(http.TimeFormat), "x-ms-version": "2021-12-02"}
	for i := 0; i < len(header); i += 2 {
		all[strings.ToLower(header[i])] = header[i+1]
	}
	length := strconv.Itoa(len(body))
	if body == "" {
		length = ""
	}
	text := strings.Join([]string{method, all["content-encoding"], all["content-language"], length, all["content-md5"],
		all["content-type"], "", all["if-modified-since"], all["if-match"], all["if-none-match"], all["if-unmodified-since"],
		all["range"]}, "\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.HasPrefix(name, "x-ms-") {
			text += "\n" + name + ":" + all[name]
		}
	}
	text += "\n/store" + u.EscapedPath()
	for _, name := range slices.Sorted(maps.Keys(u.Query())) {
		text += "\n" + name + ":" + u.Query().Get(name)
	}
	mac := hmac.New(sha256.New, s.Key)
	mac.Write([]byte(text))
	sent := []string{"Authorization", "SharedKey store:" + base64.StdEncoding.EncodeToString(mac.Sum(nil))}
	for name, v := range all {
		sent = append(sent, http.CanonicalHeaderKey(name), v)
	}
	return s.Do(method, path, body, sent...)
}

// sign returns the query of a service SAS for the container c-1 with some fields.
func (s *Storage) Sign(fields string) string {
	q, err := url.ParseQuery(fields)
	require.NoError(s.T, err)
	names := strings.Fields("sp st se resource si sip spr sv sr snapshot ses rscc rscd rsce rscl rsct")
	if q.Get("sv") < "2020-12-06" {
		names = slices.DeleteFunc(names, func(n string) bool { return n == "ses" })
	}
	values := make([]string, len(names))
	for i, n := range names {
		if values[i] = q.Get(n); n == "resource" {
			values[i] = "/blob/store/c-1"
		}
	}
	mac := hmac.New(sha256.New, s.Key)
	mac.Write([]byte(strings.Join(values, "\n")))
	q.Set("sig", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return "?" + q.Encode()
}

// put stores a blob, which must be taken.
func (s *Storage) Put(name, body string, header ...string) Reply {
	s.T.Helper()
	r := s.Request("PUT", "/store/c-1/"+name, body, append(header, "x-ms-blob-type", "BlockBlob")...)
	require.Equal(s.T, 201, r.StatusCode, r.Text)
	return r
}

// InStorage runs a test with a container c-1.
func InStorage(t *testing.T, test func(t *testing.T, h *testbroker.Hub, s *Storage)) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := NewHub(t, nil)
		s := NewStorage(t, h)
		require.Equal(t, 201, s.Request("PUT", "/store/c-1?restype=container", "").StatusCode)
		test(t, h, s)
	})
}

// MD5 returns the checksum of a body as headers have it.
func MD5(body string) string {
	sum := md5.Sum([]byte(body))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// BlockList returns the body of Put Block List: "L1" is the latest block "1".
func BlockList(entries ...string) string {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="utf-8"?><BlockList>`)
	for _, e := range entries {
		tag := map[byte]string{'L': "Latest", 'C': "Committed", 'U': "Uncommitted"}[e[0]]
		fmt.Fprintf(&b, "<%s>%s</%s>", tag, base64.StdEncoding.EncodeToString([]byte(e[1:])), tag)
	}
	b.WriteString("</BlockList>")
	return b.String()
}
