package dpshttp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// An MQTT broker closes the connection when it gets a request.
func TestAPortThatSpeaksAnotherProtocolIsNamed(t *testing.T) {
	addr := testkit.Serve(t, testkit.HangUp(false))
	id := &provisioning.Identity{IDScope: "0ne00ABCDEF", RegistrationID: "reg-1"}
	var err error
	id.Sign, err = transport.SharedKey(groupKey)
	require.NoError(t, err)
	c, err := provisioning.New(id, dpshttp.New(&netopt.Options{Plaintext: true, Addr: addr}),
		&provisioning.Options{Policy: retrypolicy.NoRetry{}})
	require.NoError(t, err)
	_, err = c.Register(t.Context())
	require.ErrorContains(t, err, "in place of the first answer; this port may speak another protocol than HTTP")
}
