package dpshttp_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport/netopt"
)

const (
	groupKey  = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+Pw=="
	secondKey = "MDAwMTAyMDMwNDA1MDYwNzA4MDkwYTBiMGMwZDBlMGY="
)

// withService runs f in fake time with a provisioning service and one hub.
func withService(t *testing.T, f func(t *testing.T, d *testbroker.DPS, h *testbroker.Hub, o *netopt.Options)) {
	testkit.In2030(t, func(t *testing.T) {
		d, err := testbroker.NewDPS(nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, d.Close()) }()
		h, err := testbroker.New(&testbroker.Options{HostName: "hub1.example.test"})
		require.NoError(t, err)
		defer func() { require.NoError(t, h.Close()) }()
		require.NoError(t, d.Link(h))
		f(t, d, h, &netopt.Options{Dial: d.Dial(testbroker.PortHTTPS), TLS: d.ClientTLS()})
	})
}

func enrolled(d *testbroker.DPS, id string) *provisioning.Identity {
	return &provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(), RegistrationID: id}
}
