package netopt_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func write(t *testing.T, name string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, content, 0o600))
}

// newHub returns a hub with an authority of its own.
func newHub(t *testing.T) *testbroker.Hub {
	hub, err := testbroker.New(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hub.Close()) })
	return hub
}

func TestRootFilesVerifyTheHub(t *testing.T) {
	hub := newHub(t)
	thermometer, err := hub.AddDevice("thermometer")
	require.NoError(t, err)
	creds, err := device.ParseConnectionString(thermometer.ConnectionString())
	require.NoError(t, err)
	own, other := filepath.Join(t.TempDir(), "own.pem"), filepath.Join(t.TempDir(), "other.pem")
	write(t, own, hub.CAPEM())
	write(t, other, newHub(t).CAPEM())
	open := func(files ...string) error {
		network := netopt.Options{Dial: hub.Dial(testbroker.PortMQTTS), RootCAs: netopt.RootFiles(files...)}
		client, err := device.New(creds, mqtt.New(&mqtt.Options{Network: network}),
			&device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		require.NoError(t, err)
		defer client.Close()
		return client.Open(t.Context())
	}
	require.NoError(t, open(own))
	require.NoError(t, open(other, own), "any of the files may have the root")
	require.ErrorIs(t, open(other), transport.Unavailable, "the file may be about to change")
	require.ErrorIs(t, open(own+".missing"), transport.Invalid)
}

func TestRootFilesAreReadAtEachDial(t *testing.T) {
	name := filepath.Join(t.TempDir(), "roots.pem")
	first, second := newHub(t), newHub(t)
	roots := netopt.RootFiles(name)
	_, err := roots(t.Context(), nil)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, name)
	write(t, name, []byte("no certificate"))
	_, err = roots(t.Context(), nil)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, name+": no certificate in PEM")

	same := func(h *testbroker.Hub) {
		t.Helper()
		got, err := roots(t.Context(), nil)
		require.NoError(t, err)
		require.True(t, got.Equal(h.RootCAs()))
	}
	write(t, name, first.CAPEM())
	same(first)
	write(t, name, second.CAPEM())
	same(second)
	require.NoError(t, os.Remove(name))
	same(second)
	write(t, name, nil)
	same(second)
}

func TestRootFilesNeedAFile(t *testing.T) {
	_, err := netopt.RootFiles()(t.Context(), nil)
	require.ErrorIs(t, err, transport.Invalid)
}
