package hub_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/event"
)

// A client of another protocol at a port for MQTT is refused at its first byte, and the event names
// the protocol.
func TestAClientOfAnotherProtocolIsNamed(t *testing.T) {
	for sent, want := range map[string]string{
		"POST /devices HTTP/1.1\r\nHost: h\r\n\r\n": "speaks HTTP",
		"GET":                      "speaks HTTP",
		"AMQP\x03\x01\x00\x00":     "speaks AMQP",
		"\x16\x03\x01\x02\x00\x01": "speaks TLS",
		"\x16":                     "speaks TLS",
		"\xc0\x00":                 "speaks no MQTT",
		"\x11\x00":                 "speaks no MQTT",
	} {
		t.Run(want, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) { begins(t, sent, want) })
		})
	}
}

// begins sends bytes to each front for MQTT and expects an event about them.
func begins(t *testing.T, sent, want string) {
	events := make(chan event.Event, 64)
	tell := func(e event.Event) {
		if e.Err != nil {
			events <- e
		}
	}
	refused := func(dial func(context.Context, string, string) (net.Conn, error)) {
		t.Helper()
		conn, err := dial(t.Context(), "tcp", "hub.example:1883")
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Write([]byte(sent))
		require.NoError(t, err)
		require.ErrorContains(t, (<-events).Err, want)
	}
	hub, err := testbroker.New(&testbroker.Options{OnEvent: tell})
	require.NoError(t, err)
	defer hub.Close()
	refused(hub.Dial(testbroker.PortMQTT))
	broker, err := testbroker.New(&testbroker.Options{OnEvent: tell, Broker: &testbroker.BrokerOptions{}})
	require.NoError(t, err)
	defer broker.Close()
	refused(broker.Dial(testbroker.PortMQTT))
	dps, err := testbroker.NewDPS(&testbroker.DPSOptions{OnEvent: tell})
	require.NoError(t, err)
	defer dps.Close()
	refused(dps.Dial(testbroker.PortMQTT))
}
