package dpshttp_test

import (
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestACallIsAPOST(t *testing.T) {
	var lines, ids, conns []string
	served(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		lines = append(lines, r.Method+" "+r.RequestURI+" "+r.Header.Get("Content-Type")+" "+string(body))
		ids, conns = append(ids, r.Header.Get("x-ms-client-request-id")), append(conns, r.RemoteAddr)
		require.Regexp(t, "^SharedAccessSignature sr=.*&skn=registration$", r.Header.Get("Authorization"))
		w.Header().Set("Retry-After", "7")
		w.Header().Set("x-ms-error-code", "THROTTLED")
		w.WriteHeader(429)
	}, func(t *testing.T, o *netopt.Options) {
		c, err := provisioning.New(identity(t), dpshttp.New(o), nil)
		require.NoError(t, err)
		for range 2 {
			a, err := c.Call(t.Context(), "requestSoftwareUpdates", []byte(`{"a":1}`))
			require.NoError(t, err)
			require.Equal(t, &provisioning.Answer{Status: 429, RetryAfter: 7 * time.Second, ErrorCode: "THROTTLED",
				Body: []byte{}}, a)
		}
		c.CloseIdle()
	})
	line := "POST /0ne00ABCDEF/registrations/reg%3A0001/requestSoftwareUpdates?api-version=2026-11-02-preview " +
		`application/json {"a":1}`
	require.Equal(t, []string{line, line}, lines)
	require.Equal(t, conns[0], conns[1], "one connection")
	uuid := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	require.Regexp(t, uuid, ids[0])
	require.NotEqual(t, ids[0], ids[1])
}
