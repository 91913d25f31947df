package mqtt_test

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// The hub publishes the will when the device disappears, and not after DISCONNECT.
func TestTheWillIsPublishedAfterALoss(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		h := hubfixture.New(t)
		c, err := device.New(h.CredsWith(t, ""), mqtt.New(&mqtt.Options{
			Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)},
			Will:    &transport.Message{ID: "last words", Body: []byte("gone")},
		}), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		h.Drop("")
		require.NoError(t, h.WaitMessages(t.Context(), 1))
		m := h.Messages()[0]
		require.Equal(t, "last words", m.MessageID)
		require.Equal(t, "gone", string(m.Body))
		kind, _ := m.Property("iothub-MessageType")
		require.Equal(t, "Will", kind)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{}))
		require.NoError(t, c.Close())
		synctest.Wait()
		require.Equal(t, 2, h.Len())
	})
}

func TestWrongWills(t *testing.T) {
	long := make([]transport.Property, 700)
	for i := range long {
		long[i] = transport.Property{Name: "n" + strconv.Itoa(i), Value: strings.Repeat("v", 100)}
	}
	for want, will := range map[string]*transport.Message{
		"Will has a body of 65536": {Body: make([]byte, 65536)},
		"Will: send: invalid":      {ID: "\xff"},
		"Will has a topic of 7":    {Properties: long},
	} {
		_, err := mqtt.New(&mqtt.Options{Will: will}).Dial(t.Context(), &transport.Config{
			Creds: &transport.Credentials{Host: "h", DeviceID: "d"}})
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, want)
	}
}
