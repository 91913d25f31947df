package dpscert

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/transport"
)

// FuzzRefusal reads any answer that refuses a request.
func FuzzRefusal(f *testing.F) {
	f.Add(429, []byte(`{"errorCode":429002,"message":"slow down","retryAfter":7,"info":{"credentialError":"x"}}`))
	f.Add(400, []byte(`{"errorCode":"400040","retryAfter":"999999999999"}`))
	f.Add(999, []byte(`{"errorCode":1e9,"message":{},"info":[]}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 100 || status > 999 {
			return
		}
		e := refusal(status, body)
		require.GreaterOrEqual(t, e.RetryAfter, time.Duration(0))
		require.LessOrEqual(t, e.RetryAfter, time.Hour)
		refused := e.Err.(*transport.StatusError)
		require.Equal(t, status, refused.Status)
		require.LessOrEqual(t, len(refused.Message), scrub.MaxPeer+len("..."))
		require.True(t, refused.Code == 0 || refused.Code/1000 == status)
	})
}

// Each code is listed once, and its kind fits its status.
func TestCodes(t *testing.T) {
	seen := map[int]bool{}
	for _, row := range codes {
		require.False(t, seen[row.code])
		seen[row.code] = true
		require.NotEmpty(t, row.meaning)
		require.Equal(t, row, meaning(row.code/1000, row.code))
	}
	for status, want := range map[int]transport.Kind{400: transport.Invalid, 401: transport.Unauthorized,
		404: transport.NotFound, 409: transport.Conflict, 429: transport.Throttled, 500: transport.Unavailable,
		503: transport.Unavailable} {
		require.Equal(t, want, meaning(status, 0).kind)
	}
	require.Equal(t, newRequest, meaning(418, 0).fix)
	require.Equal(t, repeat, meaning(503, 503999).fix)
}

func TestStepsHaveNames(t *testing.T) {
	for s := range steps {
		require.NotEmpty(t, s.String())
	}
	require.Equal(t, "undefined step", steps.String())
	e := Event{Step: StepRequesting, Attempt: 2, AtHub: true}
	require.Equal(t, "requesting at the hub, attempt 2", e.String())
	e = Event{Step: StepRetrying, Attempt: 3, Delay: time.Minute, Err: errNone}
	require.Equal(t, "retrying, attempt 3 in 1m0s: "+errNone.Error(), e.String())
}
