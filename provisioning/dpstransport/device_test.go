package dpstransport_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/provisioning/dpshttp"
	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// newService returns a provisioning service with two hubs, by their names. They are closed with the
// test.
func newService(t *testing.T) (*testbroker.DPS, map[string]*testbroker.Hub) {
	d, err := testbroker.NewDPS(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	hubs := map[string]*testbroker.Hub{}
	for _, name := range []string{"hub1.example.test", "hub2.example.test"} {
		h, err := testbroker.New(&testbroker.Options{HostName: name})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, h.Close()) })
		require.NoError(t, d.Link(h))
		hubs[name] = h
	}
	return d, hubs
}

// newTransport returns a Transport of the device reg-0001, which registers over HTTPS.
func newTransport(t *testing.T, d *testbroker.DPS, key string, o *dpstransport.Options,
	inner dpstransport.Inner) *dpstransport.Transport {
	sign, err := transport.SharedKey(key)
	require.NoError(t, err)
	registrar, err := provisioning.New(&provisioning.Identity{Endpoint: d.HostName(), IDScope: d.IDScope(),
		RegistrationID: "reg-0001", Sign: sign}, dpshttp.New(&netopt.Options{Dial: d.Dial(testbroker.PortHTTPS),
		TLS: d.ClientTLS()}), nil)
	require.NoError(t, err)
	tr, err := dpstransport.New(registrar, inner, o)
	require.NoError(t, err)
	return tr
}
