package presets_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/presets"
)

func TestTheSessionHasTheClientIDAndTheAuthenticationName(t *testing.T) {
	user, id := strings.Repeat("ü", 128), strings.Repeat("é", 128)
	creds := &transport.Credentials{Host: "h", DeviceID: id, UserName: user}
	_, hello, err := presets.EventGrid(dialect.Topics{Telemetry: "a/b"}).Session(&dialect.Config{Creds: creds})
	require.NoError(t, err)
	require.Equal(t, id, hello.ClientID)
	require.Equal(t, user, hello.UserName)
	require.LessOrEqual(t, hello.MaxSize, 512<<10)

	creds.UserName += "x"
	_, _, err = presets.EventGrid(dialect.Topics{Telemetry: "a/b"}).Session(&dialect.Config{Creds: creds})
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "the user name has 129 characters, and Event Grid takes 128; shorten it")
	require.NotContains(t, err.Error(), user)

	creds.UserName, creds.DeviceID = "", id+"x"
	_, _, err = presets.EventGrid(dialect.Topics{Telemetry: "a/b"}).Session(&dialect.Config{Creds: creds})
	require.ErrorContains(t, err, "the client id has 129 characters")
}

func TestALongTopicForEventGridIsRefused(t *testing.T) {
	creds := &transport.Credentials{Host: "h", DeviceID: "d"}
	s, _, err := presets.EventGrid(dialect.Topics{Telemetry: "a/b"}).Session(&dialect.Config{Creds: creds})
	require.NoError(t, err)
	_, refused := s.Publication(&transport.Message{Topic: strings.Repeat("x", 257)})
	require.ErrorContains(t, refused, "the topic has 257 bytes, and Event Grid takes 256")
}
