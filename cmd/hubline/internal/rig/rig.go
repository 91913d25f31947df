// Package rig connects the tool's tests to a hub in the same process, under the port numbers of the
// service.
package rig

import (
	"context"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
)

// Dialer makes connections, as net.Dialer.DialContext does.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// server is a hub, or a provisioning service.
type server interface {
	Dial(p testbroker.Port) func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Ports are the service's ports, and those without TLS that brokers have.
var Ports = map[string]testbroker.Port{
	"8883": testbroker.PortMQTTS, "5671": testbroker.PortAMQPS, "443": testbroker.PortHTTPS,
	"1883": testbroker.PortMQTT, "5672": testbroker.PortAMQP,
}

// errClosed is the answer of a port without a server.
var errClosed = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// Dial returns a dialer that reaches the server at its ports, whatever the host.
func Dial(s server) Dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		_, number, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		port, ok := Ports[number]
		if !ok {
			return nil, errClosed
		}
		return s.Dial(port)(ctx, network, address)
	}
}

// Hub makes a hub with the device "pump-1", which ends with the test.
func Hub(t *testing.T, o *testbroker.Options) *testbroker.Hub {
	t.Helper()
	hub, err := testbroker.New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hub.Close()) })
	_, err = hub.AddDevice("pump-1")
	require.NoError(t, err)
	return hub
}
