package statuscode_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

func TestStatusesOfTwinReplies(t *testing.T) {
	for code, want := range map[int]transport.Kind{
		400: transport.Invalid, 401: transport.Unauthorized, 403: transport.Forbidden, 404: transport.NotFound,
		408: transport.Timeout, 409: transport.Conflict, 412: transport.Conflict,
		413: transport.TooLarge, 418: transport.Invalid, 429: transport.Throttled, 500: transport.Unavailable,
		501: transport.Unsupported, 502: transport.Unavailable, 503: transport.Unavailable,
		504: transport.Timeout, 599: transport.Unavailable, 0: transport.Protocol, 100: transport.Protocol,
		302: transport.Protocol, 600: transport.Protocol, -1: transport.Protocol,
	} {
		kind, good := statuscode.TwinKind(code)
		require.Equal(t, want, kind, code)
		require.False(t, good, code)
	}
	for code := 200; code < 300; code++ {
		_, good := statuscode.TwinKind(code)
		require.Equal(t, code == 200 || code == 202 || code == 204, good, code)
	}
}

func TestRefusalOfATwinReply(t *testing.T) {
	for body, want := range map[string]string{
		`{"errorCode":400004,"trackingId":"abc-1","message":"bad reported property"}`: "mqtt twin patch: invalid: hub " +
			"answered 400, code 400004: bad reported property",
		`{"ErrorCode":"400004","Message":"old \"form\""}`: "mqtt twin patch: invalid: hub answered 400, " +
			`code 400004: old \"form\"`,
		`no JSON`:                        "mqtt twin patch: invalid: hub answered 400",
		``:                               "mqtt twin patch: invalid: hub answered 400",
		`{"message":17,"errorCode":"x"}`: "mqtt twin patch: invalid: hub answered 400: 17",
		`{"message":"` + strings.Repeat("x", 999) + `"}`: "mqtt twin patch: invalid: hub answered 400: " + strings.Repeat("x",
			200),
	} {
		err := statuscode.TwinRefusal(transport.OpTwinPatch, "mqtt", 400, []byte(body))
		require.Equal(t, want, err.Error())
		var e *transport.StatusError
		require.True(t, errors.As(err, &e))
		require.Equal(t, 400, e.Status)
	}
}
