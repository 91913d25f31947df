package mqtt

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
)

func TestTheEndOfCtxEndsTheDialAtOnce(t *testing.T) {
	stages := map[string]func(h *hub, o *Options){
		"while the network hangs": func(h *hub, _ *Options) { h.net.Hang(true) },
		"in the TLS handshake":    func(_ *hub, o *Options) { o.Network.Plaintext = false },
		"before the CONNACK":      func(*hub, *Options) {},
	}
	for name, prepare := range stages {
		testkit.Run(t, name, func(t *testing.T) {
			h := newHub(t)
			o := h.options()
			prepare(h, o)
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(3*time.Second, cancel)
			began := time.Now()
			_, err := New(o).Dial(ctx, &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			require.Equal(t, 3*time.Second, time.Since(began))
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope)
			requireNothingLeft(t, h)
		})
	}
}

// requireNothingLeft fails if the client's end of the last connection is open.
func requireNothingLeft(t *testing.T, h *hub) {
	t.Helper()
	if c := h.net.Last(); c != nil {
		_, err := c.Write([]byte{0})
		require.ErrorIs(t, err, net.ErrClosed)
	}
}

// ctx may end at the moment in which the engine becomes connected.
func TestCtxThatEndsWithTheConnackLeavesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		ctx, cancel := context.WithCancel(context.Background())
		o := h.options()
		o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := h.net.DialContext(ctx, network, addr)
			return &readHook{c, cancel}, err
		}
		go func() {
			l := h.accept()
			l.Send(typeConnack<<4, 2, 0, 0)
			_, _ = l.Drain()
		}()
		_, err := New(o).Dial(ctx, &transport.Config{Creds: testCreds(t), Sink: new(sink)})
		require.ErrorIs(t, err, context.Canceled)
		requireNothingLeft(t, h)
	})
}

// readHook calls a function after a read.
type readHook struct {
	net.Conn
	hook func()
}

func (c *readHook) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.hook()
	}
	return n, err
}

// With TLS, DISCONNECT is written, but close_notify blocks.
func TestDisconnectIsBoundedWhenOnlyCloseNotifyIsStuck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := memconn.Pair("a", "b")
		defer b.Close()
		c := newConn(&slowCloser{Conn: a}, a)
		_, _ = c.Write([]byte{typeDisconnect << 4, 0})
		began := time.Now()
		_ = c.Close()
		require.LessOrEqual(t, time.Since(began), time.Second/2)
	})
}

// slowCloser takes 5 s to close unless the socket below is closed.
type slowCloser struct{ *memconn.Conn }

func (c *slowCloser) Close() error {
	_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
	_, _ = c.Read(make([]byte, 1))
	return nil
}
