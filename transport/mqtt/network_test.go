package mqtt_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// send dials, sends one message and ends.
func send(t testing.TB, creds *transport.Credentials, o *netopt.Options) error {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s, err := mqtt.New(&mqtt.Options{Network: *o}).Dial(ctx, &transport.Config{Creds: creds, Window: 1,
		Sink: endAfterFirst{cancel}})
	if err != nil {
		return err
	}
	s.Send([]transport.Item{{Msg: &transport.Message{Body: []byte("x")}}})
	require.ErrorIs(t, s.Run(ctx), context.Canceled)
	return nil
}

func fixed(context.Context) (transport.Token, error) {
	return transport.Token{Text: transport.Hide("no token")}, nil
}

func TestWrongOptionsAreInvalid(t *testing.T) {
	creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}
	for text, o := range map[string]*netopt.Options{
		"WriteTimeout is negative": {WriteTimeout: -1},
		`Addr "hub" is not`:        {Addr: "hub"},
		"both Plaintext and Certificate": {Plaintext: true,
			Certificate: func(context.Context) (*tls.Certificate, error) { return nil, nil }},
	} {
		err := send(t, creds, o)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, text)
	}
}

// certify returns a self-signed certificate for hub.example.test that is valid now, and a pool with
// it.
func certify(t testing.TB) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"hub.example.test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// A board needs up to 80 s to detect this; on standard Go WriteTimeout detects it.
func TestAPeerThatStopsReadingIsFoundByTheWriter(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		near.SetBuffer(16 << 10)
		go func() { // a hub that sends a CONNACK and then does nothing
			_, _ = far.Read(make([]byte, 4096))
			_, _ = far.Write([]byte{0x20, 2, 0, 0})
		}()
		creds := &transport.Credentials{Host: "hub.example.test", DeviceID: "dev-1"}
		s, err := mqtt.New(&mqtt.Options{Network: netopt.Options{
			Plaintext: true, WriteTimeout: 3 * time.Second,
			Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil },
		}}).Dial(t.Context(), &transport.Config{Creds: creds, Window: 64,
			Sink: endAfterFirst{func() {}}})
		require.NoError(t, err)
		ran := make(chan error)
		go func() { ran <- s.Run(t.Context()) }()
		begun := time.Now()
		batch := make([]transport.Item, 64)
		for i := range batch {
			batch[i] = transport.Item{Tag: uint16(i), Msg: &transport.Message{Body: make([]byte, 100_000)}}
		}
		s.Send(batch)
		err = <-ran
		require.Equal(t, 18*time.Second, time.Since(begun), "its kernel answers")
		require.ErrorIs(t, err, transport.Timeout)
		require.ErrorContains(t, err, "the hub accepts no data")
	})
}

// countedConn counts its writes.
type countedConn struct {
	*memconn.Conn
	writes int
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes++
	return c.Conn.Write(p)
}

// On a fast link a large write is one write of the socket, over TLS too.
func TestAConnectionWithoutTunnelIsFast(t *testing.T) {
	for _, row := range []struct{ secure, tunnel bool }{{}, {secure: true}, {tunnel: true}} {
		testkit.Bubble(t, func(t *testing.T) {
			near, far := memconn.Pair("near", "far")
			cert, roots := certify(t)
			o := &netopt.Options{Plaintext: !row.secure}
			var peer net.Conn = far
			if row.secure {
				o.Anonymous, o.TLS = true, &tls.Config{RootCAs: roots}
				peer = tls.Server(far, &tls.Config{Certificates: []tls.Certificate{cert}})
			}
			if row.tunnel {
				o.Tunnel = &replyingTunnel{pending: make(chan struct{}, 1)}
			}
			go func() { _, _ = io.Copy(io.Discard, peer) }()
			socket := &countedConn{Conn: near}
			o.Dial = func(context.Context, string, string) (net.Conn, error) { return socket, nil }
			c, err := mqtt.Dialer(o)(t.Context(), &transport.Credentials{Host: "hub.example.test"})
			require.NoError(t, err)
			require.False(t, c.(interface{ Fast() bool }).Fast())
			for range 100 {
				_, err := c.Write(make([]byte, 16<<10))
				require.NoError(t, err)
			}
			require.Equal(t, !row.tunnel, c.(interface{ Fast() bool }).Fast())
			before := socket.writes
			_, err = c.Write(make([]byte, 80<<10)) // of the engine
			require.NoError(t, err)
			require.Equal(t, 1, socket.writes-before)
			require.NoError(t, c.Close())
		})
	}
}

// The goroutine of a tunnel with replies writes them between the session's writes, and ends with
// the connection.
func TestATunnelSendsItsPendingReplies(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		near, far := memconn.Pair("near", "far")
		tunnel := &replyingTunnel{pending: make(chan struct{}, 1)}
		before := testkit.Goroutines()
		dial := mqtt.Dialer(&netopt.Options{
			Plaintext: true, Tunnel: tunnel, Dial: func(context.Context, string, string) (net.Conn, error) { return near, nil },
		})
		c, err := dial(t.Context(), &transport.Credentials{Host: "h"})
		require.NoError(t, err)
		for range 100 {
			tunnel.pending <- struct{}{}
			_, err := c.Write([]byte("data"))
			require.NoError(t, err)
		}
		synctest.Wait()
		require.EqualValues(t, 100, tunnel.replies.Load())
		require.Equal(t, before+1, testkit.Goroutines())

		// Close is bounded although a write is stuck, and unblocks it.
		near.SetBuffer(1000)
		far.SetBuffer(1000)
		stuck := make(chan error)
		go func() {
			_, err := c.Write(make([]byte, 100_000))
			stuck <- err
		}()
		synctest.Wait()
		tunnel.pending <- struct{}{} // must wait for the write
		synctest.Wait()
		begun := time.Now()
		_ = c.Close()
		require.LessOrEqual(t, time.Since(begun), 250*time.Millisecond)
		require.Error(t, <-stuck)
		_, err = c.Write(nil)
		require.Error(t, err)
		synctest.Wait()
		require.Equal(t, before, testkit.Goroutines())
		require.EqualValues(t, 1, tunnel.writers.Load(), "never two at a time")
	})
}

type replyingTunnel struct {
	net.Conn
	pending chan struct{}
	replies atomic.Int64
	now     atomic.Int64
	writers atomic.Int64 // the most at the same time
}

func (o *replyingTunnel) Port(bool) string { return "1" }

func (o *replyingTunnel) Open(_ context.Context, c net.Conn, _ netopt.Peer) (net.Conn, error) {
	o.Conn = c
	return o, nil
}

func (o *replyingTunnel) ControlPending() <-chan struct{} { return o.pending }

func (o *replyingTunnel) Write(p []byte) (int, error) {
	if n := o.now.Add(1); n > o.writers.Load() {
		o.writers.Store(n)
	}
	defer o.now.Add(-1)
	if len(p) == 0 {
		o.replies.Add(1)
	}
	return o.Conn.Write(p)
}
