package target

import (
	"context"
	"errors"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// TCP sends nothing on a connection that is left quiet, through a proxy neither.
func TestAQuietConnectionHasNoKeepAlive(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	f := Flags{Addresses: []string{listener.Addr().String()}}
	to, err := f.Resolve(&World{Getenv: func(name string) string {
		return map[string]string{EnvConnect: "HostName=hub.example;DeviceId=pump-1;" +
			"SharedAccessKey=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}[name]
	}})
	require.NoError(t, err)
	on := -1
	to.Network.Proxy = func(_ *url.URL, direct netopt.DialFunc) (netopt.DialFunc, error) {
		if direct == nil {
			direct = new(net.Dialer).DialContext
		}
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := direct(ctx, network, address)
			if err != nil {
				return nil, err
			}
			raw, err := conn.(*net.TCPConn).SyscallConn()
			if err == nil {
				err = raw.Control(func(fd uintptr) {
					on, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
				})
			}
			return nil, errors.Join(err, conn.Close(), errors.New("seen"))
		}, nil
	}
	quiet, creds, err := to.Quiet(0)
	require.NoError(t, err)
	_, err = quiet.Dial(t.Context(), &transport.Config{Creds: creds})
	require.ErrorContains(t, err, "seen")
	require.Zero(t, on)
}
