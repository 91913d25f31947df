package dpscert

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// FuzzAnswers reads any answer of the hub to a request for a certificate.
func FuzzAnswers(f *testing.F) {
	for _, body := range []string{"", "{}", `{"correlationId":"c","operationExpires":"2030-01-01T00:00:00Z"}`,
		`{"certificates":["AQID","!"]}`, `{"certificates":{}}`, `[]`,
		`{"errorCode":409005,"message":"x","trackingId":"t","info":{"credentialError":"E"},"retryAfter":"30"}`,
		`{"errorCode":"429002","retryAfter":99999999999999999999}`, `{"errorCode":412001,"retryAfter":-1,"info":[]}`} {
		for _, status := range []string{"200", "202", "400", "409", "412", "429", "503"} {
			f.Add(status, "x", []byte(body))
		}
	}
	f.Add("99999", "y", []byte("null"))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, status, id string, body []byte) {
		r, err := New(key, nil)
		require.NoError(t, err)
		q := &request{id: "x", name: "dev-1", key: key}
		r.pending = q
		s := &session{t: &Transport{r: r}, deviceID: "dev-1"}
		for range 3 {
			verdict, err := s.read(t.Context(), answer{status: status, id: id, body: body})
			require.Nil(t, r.held(), "no chain is one for the key")
			switch verdict {
			case ignored, accepted:
				require.NoError(t, err)
			case corrected, final:
				e := transport.Find(err)
				require.NotNil(t, e)
				require.GreaterOrEqual(t, e.RetryAfter, time.Duration(0))
				require.LessOrEqual(t, e.RetryAfter, time.Hour)
				require.Less(t, len(err.Error()), 4096)
			}
			if id != "x" {
				require.Equal(t, ignored, verdict)
				require.Same(t, q, r.pending)
			}
		}
	})
}
