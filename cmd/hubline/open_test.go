package main

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/fault"
)

// The end of a wait for a connection says how long it was, what failed last, and whose fault it is.
func TestTheEndOfAWaitForAConnection(t *testing.T) {
	t.Run("silence", func(t *testing.T) {
		s := newShell(t, nil)
		s.hub.Inject(fault.Fault{Kind: fault.SwallowConnack, Times: -1})
		require.Equal(t, exitNetwork, s.run("send", "-body", "x", "-connect-timeout", "100ms"), s.log.String())
		require.Contains(t, s.log.String(), "no connection within 100ms")
		require.NotContains(t, s.log.String(), "context")
	})
	t.Run("failure", func(t *testing.T) {
		s := newShell(t, nil)
		s.dial = func(context.Context, string, string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")}
		}
		require.Equal(t, exitNetwork, s.run("listen", "-connect-timeout", "3s"), s.log.String())
		require.Contains(t, s.log.String(), "no connection within 3s: mqtt dial: network failure")
		require.Contains(t, s.log.String(), "no route to host\n  hubline doctor")
	})
	t.Run("Ctrl-C", func(t *testing.T) {
		s := newShell(t, nil)
		ctx, interrupt := context.WithCancel(t.Context())
		s.dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			interrupt()
			<-ctx.Done()
			return nil, ctx.Err()
		}
		require.Equal(t, exitFailed, s.runIn(ctx, "listen"), s.log.String())
		require.Contains(t, s.log.String(), "interrupted before there was a connection")
	})
}
