package hubfixture

import (
	"context"
	"net"
	"os"
	"syscall"

	"github.com/hubline-iot/hubline/testbroker"
)

// Dialer makes connections, as net.Dialer.DialContext does.
type Dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// ports are the service's ports, and those without TLS that brokers have.
var ports = map[string]testbroker.Port{
	"8883": testbroker.PortMQTTS, "5671": testbroker.PortAMQPS, "443": testbroker.PortHTTPS,
	"1883": testbroker.PortMQTT, "5672": testbroker.PortAMQP,
}

// errClosed is the answer of a port without a server.
var errClosed = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// AtPorts returns a dialer that reaches a hub, or a provisioning service, under the port numbers of
// the service, whatever the host.
func AtPorts(server interface {
	Dial(p testbroker.Port) func(ctx context.Context, network, addr string) (net.Conn, error)
}) Dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		_, number, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		port, ok := ports[number]
		if !ok {
			return nil, errClosed
		}
		return server.Dial(port)(ctx, network, address)
	}
}
