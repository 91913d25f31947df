package memconn_test

import (
	"context"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
)

func network(t *testing.T) *memconn.Network {
	n := memconn.NewNetwork("hub:8883")
	t.Cleanup(func() { n.Close() })
	return n
}

func TestNetworkConnects(t *testing.T) {
	n := network(t)
	require.Nil(t, n.Last())
	c, err := n.DialContext(t.Context(), "tcp", "hub:8883")
	require.NoError(t, err)
	defer c.Close()
	s, err := n.Accept()
	require.NoError(t, err)
	defer s.Close()
	require.Same(t, c, n.Last())
	require.Equal(t, "hub:8883", n.Addr().String())
	require.Equal(t, "hub:8883", c.RemoteAddr().String())
	require.Equal(t, c.LocalAddr(), s.RemoteAddr())

	_, err = c.Write([]byte("hi"))
	require.NoError(t, err)
	got := make([]byte, 2)
	_, err = io.ReadFull(s, got)
	require.NoError(t, err)
	require.Equal(t, "hi", string(got))
}

func TestRefusedDial(t *testing.T) {
	n := network(t)
	n.Refuse(true)
	_, err := n.DialContext(t.Context(), "tcp", "hub:8883")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	var op *net.OpError
	require.ErrorAs(t, err, &op)
	require.Equal(t, "dial", op.Op)

	n.Refuse(false)
	c, err := n.DialContext(t.Context(), "tcp", "hub:8883")
	require.NoError(t, err)
	c.Close()
}

func TestHangingDialEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network(t)
		n.Hang(true)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		start := time.Now()
		_, err := n.DialContext(ctx, "tcp", "hub:8883")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 20*time.Second, time.Since(start))
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		require.True(t, ne.Timeout())
	})
}

func TestHangingDialGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		change func(n *memconn.Network)
		want   error
	}{
		"released": {func(n *memconn.Network) { n.Hang(false) }, nil},
		"refused":  {func(n *memconn.Network) { n.Refuse(true) }, syscall.ECONNREFUSED},
		"closed":   {func(n *memconn.Network) { n.Close() }, syscall.ECONNREFUSED},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			n := network(t)
			n.Hang(true)
			done := make(chan error, 1)
			go func() {
				conn, err := n.DialContext(t.Context(), "tcp", "hub:8883")
				if err == nil {
					conn.Close()
				}
				done <- err
			}()
			synctest.Wait()
			require.Empty(t, done)
			c.change(n)
			require.ErrorIs(t, <-done, c.want)
		})
	}
}

func TestDialWithAnEndedContext(t *testing.T) {
	n := network(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := n.DialContext(ctx, "tcp", "hub:8883")
	require.ErrorIs(t, err, context.Canceled)
}

func TestCloseOfANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network(t)
		accepted := make(chan error, 1)
		c, err := n.DialContext(t.Context(), "tcp", "hub:8883")
		require.NoError(t, err)
		s, err := n.Accept()
		require.NoError(t, err)
		go func() {
			_, err := n.Accept()
			accepted <- err
		}()
		synctest.Wait()
		require.NoError(t, n.Close())
		require.NoError(t, n.Close())
		require.ErrorIs(t, <-accepted, net.ErrClosed)
		_, err = n.DialContext(t.Context(), "tcp", "hub:8883")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)

		_, err = c.Write([]byte("x"))
		require.NoError(t, err, "what was accepted lives on")
		c.Close()
		s.Close()
	})
}

func TestCloseResetsWhatNobodyAccepted(t *testing.T) {
	n := network(t)
	c, err := n.DialContext(t.Context(), "tcp", "hub:8883")
	require.NoError(t, err)
	defer c.Close()
	n.Close()
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
}

func TestSettingsForConnectionsToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network(t)
		n.SetBuffer(2)
		n.SetLatency(func() time.Duration { return time.Minute })
		c, err := n.DialContext(t.Context(), "tcp", "hub:8883")
		require.NoError(t, err)
		defer c.Close()
		s, err := n.Accept()
		require.NoError(t, err)
		defer s.Close()
		start := time.Now()
		require.NoError(t, c.SetWriteDeadline(start.Add(time.Second)))
		k, err := c.Write([]byte("123"))
		require.Equal(t, 2, k)
		requireTimeout(t, err)
		_, err = s.Read(make([]byte, 2))
		require.NoError(t, err)
		require.Equal(t, time.Minute, time.Since(start))
	})
}
