package workload_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/workload"
)

// FuzzRequest sends any request. The server must answer with JSON, with a message if it refuses.
func FuzzRequest(f *testing.F) {
	for _, seed := range []struct{ method, path, query, body string }{
		{"POST", "/modules/filter/genid/GENERATION/sign", "api-version=2018-06-28", `{"data":"eA=="}`},
		{"POST", "/modules/filter/genid/GENERATION/encrypt", "api-version=2018-06-28",
			`{"plaintext":"eA==","initializationVector":"eA=="}`},
		{"POST", "/modules/filter/genid/GENERATION/decrypt", "api-version=2018-06-28",
			`{"ciphertext":"eHh4eHh4eHh4eHh4eHh4eHh4eHg=","initializationVector":"eA=="}`},
		{"POST", "/modules/filter/genid/GENERATION/certificate/server", "api-version=2018-06-28",
			`{"commonName":"a.test","expiration":"2300-01-01T00:00:00Z"}`},
		{"POST", "/modules/filter/certificate/identity", "api-version=2018-06-28", `{}`},
		{"GET", "/trust-bundle", "api-version=2018-06-28", ""},
		{"GET", "/modules/%2f/%zz//", "a;b", "["},
		{"OPTIONS", "*", "", ""},
	} {
		f.Add(seed.method, seed.path, seed.query, seed.body)
	}
	f.Fuzz(func(t *testing.T, method, path, query, body string) {
		d := newDaemon(t, nil, nil)
		r, err := http.NewRequest(method, "http://workload", strings.NewReader(body))
		if err != nil {
			return // no method
		}
		r.URL.Opaque = "//workload" + strings.ReplaceAll(path, "GENERATION", d.filter.GenerationID)
		r.URL.RawQuery = query
		answer, err := d.client.Do(r)
		if err != nil || answer.Header.Get("Content-Type") != "application/json" {
			return // package net/http has refused it, on either side
		}
		defer answer.Body.Close()
		if method == http.MethodHead {
			return
		}
		var a map[string]any
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&a))
		require.Less(t, answer.StatusCode, 500, a)
		if answer.StatusCode >= 400 {
			require.NotEmpty(t, a["message"])
		}
		require.Equal(t, 1, d.server.Count(workload.CallAny))
	})
}
