package amqp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport/amqp"
)

// The hub learns the Plug and Play model from the first link.
func TestTheModelIsAnnounced(t *testing.T) {
	const model = "dtmi:com:example:Thermostat;1"
	bubble(t, func(t *testing.T, h *hub) {
		for _, want := range []string{"", model} {
			o := h.options()
			o.ModelID = want
			r := start(t, amqp.New(o), h.CredsWith(t, ""))
			r.requireSends("x")
			twin, err := h.Twin("dev-1")
			require.NoError(t, err)
			require.Equal(t, want, twin.ModelID)
			r.cancel()
			<-r.over
		}
	})
}
