package hubtest

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// The functions of this file are the hub's methods of the same names in a test that fails if they
// fail.

func AddDevice(t testing.TB, h *testbroker.Hub, id string) hubdata.Device {
	t.Helper()
	d, err := h.AddDevice(id)
	require.NoError(t, err)
	return d
}

func AddModule(t testing.TB, h *testbroker.Hub, device, module string) hubdata.Device {
	t.Helper()
	m, err := h.AddModule(device, module)
	require.NoError(t, err)
	return m
}

func AddPolicy(t testing.TB, h *testbroker.Hub, name string, rights ...hubdata.Right) hubdata.Policy {
	t.Helper()
	p, err := h.AddPolicy(name, rights...)
	require.NoError(t, err)
	return p
}

func Registered(t testing.TB, h *testbroker.Hub, id string) hubdata.Device {
	t.Helper()
	d, err := h.Device(id)
	require.NoError(t, err)
	return d
}

func Twin(t testing.TB, h *testbroker.Hub, id string) hubdata.Twin {
	t.Helper()
	twin, err := h.Twin(id)
	require.NoError(t, err)
	return twin
}

func PatchDesired(t testing.TB, h *testbroker.Hub, id, patch string) (version int64) {
	t.Helper()
	version, err := h.PatchDesired(id, patch)
	require.NoError(t, err)
	return version
}

// Listen opens a port of the hub on any free port of the loopback address.
func Listen(t testing.TB, h *testbroker.Hub, p testbroker.Port) net.Addr {
	t.Helper()
	addr, err := h.Listen(p, "127.0.0.1:0")
	require.NoError(t, err)
	return addr
}

// DialPort connects to a port of the hub in memory.
func DialPort(t testing.TB, h *testbroker.Hub, p testbroker.Port) net.Conn {
	t.Helper()
	conn, err := h.Dial(p)(t.Context(), "tcp", "hub")
	require.NoError(t, err)
	return conn
}
