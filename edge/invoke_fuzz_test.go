package edge

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubhttp"
	"github.com/hubline-iot/hubline/transport"
)

// No answer of a gateway is taken for a result unless it is one.
func FuzzReadResult(f *testing.F) {
	for _, seed := range []string{`{"status":200,"payload":{"a":1}}`, `{"status":200}`, `{"status":2e2}`,
		`{"status":null}`, `{"Status":1,"status":2}`, `[]`, ``, `{"status":-2147483649}`, `{"status":1,"payload":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		result, err := readResult(body)
		if err != nil {
			require.ErrorIs(t, err, transport.Protocol)
			require.Zero(t, result)
			return
		}
		require.True(t, json.Valid(body))
		require.True(t, result.Payload == nil || json.Valid(result.Payload))
	})
}

// The text of a refusal is bounded, and nothing but a refusal proves that the callee has not run:
// no status, code or name of a time-out does.
func FuzzRefusedCall(f *testing.F) {
	f.Add(404, "", []byte(`{"status":0,"payload":null,"message":"Device not found","exceptionMessage":""}`))
	f.Add(500, "IotHubUnauthorizedAccess", []byte(`{"Message":"{\"errorCode\":400027}"}`))
	f.Add(400, "", []byte(`{"Message":"{\"errorCode\":504101}"}`))
	f.Add(99, "GatewayTimeout", []byte(`x`))
	f.Fuzz(func(t *testing.T, status int, name string, body []byte) {
		refusal, mayHaveRun := refusedCall(&hubhttp.Answer{Status: status, Body: body,
			Header: http.Header{"Iothub-Errorcode": {name}}}, new(transport.Credentials).Time())
		require.Less(t, len(refusal.Error()), 8<<10)
		require.True(t, mayHaveRun || 300 <= status && status < 600, "%d", status)
		require.True(t, mayHaveRun || refusal.Kind != transport.Timeout, "%v", refusal)
		require.True(t, mayHaveRun || !outcomeOfStatus(status).mayHaveRun, "%v", refusal)
	})
}
