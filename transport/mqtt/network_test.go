package mqtt_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
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

func TestKindsOfFailedDials(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault.Kind
		opt   func(h *hubfixture.Broker, o *netopt.Options)
		creds func(c *transport.Credentials)
		kind  transport.Kind
	}{
		"all is well": {},
		"no trust":    {opt: func(_ *hubfixture.Broker, o *netopt.Options) { o.TLS = nil }, kind: transport.Untrusted},
		"another host": {opt: func(_ *hubfixture.Broker, o *netopt.Options) {
			o.TLS.ServerName = "other.example.test"
		}, kind: transport.Untrusted},
		"clock not set": {creds: func(c *transport.Credentials) {
			c.Now = func() time.Time { return time.Unix(1000, 0) }
			c.Sign = nil
			c.Token = fixed
		}, kind: transport.ClockUnset},
		"no token": {creds: func(c *transport.Credentials) { c.Sign = nil }, kind: transport.Invalid},
		"token refused": {creds: func(c *transport.Credentials) {
			c.Sign = nil
			c.Token = fixed
		}, kind: transport.Unauthorized},
		"not TLS":             {fault: fault.NotTLS, kind: transport.Protocol},
		"old TLS":             {fault: fault.OldTLS, kind: transport.Unsupported},
		"handshake cut":       {fault: fault.CutHandshake, kind: transport.Network},
		"certificate too old": {fault: fault.ExpiredCertificate, kind: transport.Untrusted},
		"nobody there": {opt: func(_ *hubfixture.Broker, o *netopt.Options) {
			o.Dial = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}
			}
		}, kind: transport.Timeout},
		"a kind of the dial's own": {opt: func(_ *hubfixture.Broker, o *netopt.Options) {
			o.Dial = func(context.Context, string, string) (net.Conn, error) {
				return nil, &transport.Error{Kind: transport.Forbidden}
			}
		}, kind: transport.Forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				h := hubfixture.New(t)
				if c.fault != 0 {
					h.Inject(fault.Fault{Kind: c.fault})
				}
				o := &netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS().Clone()}
				if c.opt != nil {
					c.opt(h, o)
				}
				creds := h.CredsWith(t, "")
				if c.creds != nil {
					c.creds(creds)
				}
				err := send(t, creds, o)
				if c.kind == transport.Unknown {
					require.NoError(t, err)
					require.Len(t, h.Messages(), 1)
					return
				}
				require.ErrorIs(t, err, c.kind, "%v", err)
				e := transport.Find(err)
				require.Equal(t, transport.ScopeConnection, e.Scope)
				require.Equal(t, transport.OpDial, e.Op)
				require.Equal(t, "mqtt", e.Proto)
			})
		})
	}
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

// A thousand reconnects a day must not use up the process's descriptors.
func TestNoSocketStaysOpen(t *testing.T) {
	h := hubfixture.New(t)
	tlsAddr, err := h.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
	require.NoError(t, err)
	wsAddr, err := h.Listen(testbroker.PortHTTPS, "127.0.0.1:0")
	require.NoError(t, err)
	before := openSockets(t)
	for name, o := range map[string]netopt.Options{
		"TLS":       {Addr: tlsAddr.String()},
		"WebSocket": {Addr: wsAddr.String(), Tunnel: websocket.MQTT(nil)},
	} {
		t.Run(name, func(t *testing.T) {
			trusting := o
			trusting.TLS = h.ClientTLS()
			for range 10 {
				require.NoError(t, send(t, h.CredsWith(t, ""), &trusting))
				require.ErrorIs(t, send(t, h.CredsWith(t, hubfixture.WrongKey), &trusting), transport.Unauthorized)
				require.ErrorIs(t, send(t, h.CredsWith(t, ""), &o), transport.Untrusted)
			}
		})
	}
	require.Eventually(t, func() bool { return openSockets(t) <= before }, 5*time.Second, 10*time.Millisecond)
}

// openSockets counts the sockets of this process, on systems that list them.
func openSockets(t testing.TB) int {
	const dir = "/proc/self/fd/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Skip("SKIPPED: open sockets cannot be counted here:", err)
	}
	n := 0
	for _, e := range entries {
		if to, err := os.Readlink(dir + e.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

// A port for TLS closes the connection of a client that speaks MQTT at once.
func TestAPlainConnectionThatIsClosedNamesTLS(t *testing.T) {
	for _, plain := range []bool{true, false} {
		testkit.Bubble(t, func(t *testing.T) {
			hangUp := func(context.Context, string, string) (net.Conn, error) {
				client, server := memconn.Pair("device", "hub")
				go func() {
					_, _ = server.Read(make([]byte, 1))
					_ = server.Close()
				}()
				return client, nil
			}
			creds := &transport.Credentials{Host: "broker.example.test", DeviceID: "dev-1", Token: fixed}
			err := send(t, creds, &netopt.Options{Plaintext: plain, Dial: hangUp})
			require.ErrorIs(t, err, transport.Network)
			if plain {
				require.ErrorContains(t, err, "this port may speak another protocol; if this port expects TLS, use mqtts://")
			} else {
				require.NotContains(t, err.Error(), "mqtts://")
			}
		})
	}
}
