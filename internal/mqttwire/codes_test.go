package mqttwire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

func TestTheConnackTableIsComplete(t *testing.T) {
	want := map[int]transport.Kind{
		1: transport.Unsupported, 2: transport.Unauthorized, 3: transport.Unavailable, 4: transport.Unauthorized,
		5: transport.Unauthorized,
	}
	for code := 1; code < 256; code++ {
		kind, ok := want[code]
		if !ok {
			kind = transport.Protocol
		}
		e := DialError(&ConnackError{byte(code)})
		require.Equal(t, kind, e.Kind, "code %d", code)
		require.Equal(t, code == 3, errfilter.Retryable(e), "code %d", code)
		require.NotEmpty(t, ConnackMeaning(byte(code)).Text)
	}
	require.Equal(t, "mqtt dial: service unavailable: CONNACK 3 (server unavailable)", DialError(&ConnackError{3}).Error())
	require.Equal(t, "mqtt dial: protocol violation: CONNACK 200 (reserved code)", DialError(&ConnackError{200}).Error())
}

func TestTheSubackTableIsComplete(t *testing.T) {
	for code := range 256 {
		require.Equal(t, code <= 2, Granted(byte(code)))
		kind := transport.Protocol
		if code == 0x80 {
			kind = transport.Unavailable
		}
		if code > 2 {
			require.Equal(t, kind, SubackMeaning(byte(code)).Kind, "code %d", code)
		}
		require.NotEmpty(t, SubackMeaning(byte(code)).Text)
	}
	require.Equal(t, "SUBACK 128 (refused) for a/#", (&SubackError{"a/#", 0x80}).Error())
}
