package mqtt

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// certify returns a self-signed certificate for host that is valid at now, and a pool with it.
func certify(t testing.TB, host string, now time.Time) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// serveTLS makes the hub use TLS, and o trust its certificate.
func (h *hub) serveTLS(t testing.TB, o *Options) {
	cert, pool := certify(t, "hub.example.test", time.Now())
	h.wrap = func(c net.Conn) net.Conn { return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}}) }
	o.Network.Plaintext, o.Network.TLS = false, &tls.Config{RootCAs: pool}
}

// realHub is a hub on a real TLS port.
func realHub(t *testing.T) (*testbroker.Hub, hubdata.Device, string) {
	h, err := testbroker.New(nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	dev, err := h.AddDevice("dev-1")
	require.NoError(t, err)
	addr, err := h.Listen(testbroker.PortMQTTS, "127.0.0.1:0")
	require.NoError(t, err)
	return h, dev, addr.String()
}

func TestRealTLS(t *testing.T) {
	h, dev, addr := realHub(t)
	trusting := &Options{Network: netopt.Options{Addr: addr, TLS: h.ClientTLS()}}
	dialWith := func(o *Options, creds *transport.Credentials) (transport.Session, *sink, error) {
		k := new(sink)
		s, err := New(o).Dial(t.Context(), &transport.Config{Creds: creds, Window: 16, Sink: k})
		return s, k, err
	}

	t.Run("a session over a real port", func(t *testing.T) {
		s, k, err := dialWith(trusting, credsOf(t, dev, dev.PrimaryKey))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		r := run(t, s, k, ctx, cancel)
		r.send("one", "two")
		require.NoError(t, h.WaitMessages(ctx, 2))
		h.Drop("")
		require.ErrorIs(t, <-r.ran, transport.Network)
	})
	t.Run("a wrong key is Unauthorized", func(t *testing.T) {
		_, _, err := dialWith(trusting, credsOf(t, dev, testKey))
		require.ErrorIs(t, err, transport.Unauthorized)
		require.NotContains(t, err.Error(), testKey)
	})
	t.Run("an unknown authority is Untrusted", func(t *testing.T) {
		_, _, err := dialWith(&Options{Network: netopt.Options{Addr: addr}}, credsOf(t, dev, dev.PrimaryKey))
		require.ErrorIs(t, err, transport.Untrusted)
	})
	t.Run("a host name that the certificate lacks is Untrusted", func(t *testing.T) {
		creds := credsOf(t, dev, dev.PrimaryKey)
		creds.GatewayHost = "gateway.local"
		_, _, err := dialWith(byName(h, addr), creds)
		require.ErrorIs(t, err, transport.Untrusted)
		_, ok := errors.AsType[x509.HostnameError](err)
		require.True(t, ok)
	})
	t.Run("an expired certificate is Untrusted", func(t *testing.T) {
		o := byName(h, addr)
		creds := credsOf(t, dev, dev.PrimaryKey)
		creds.Now = func() time.Time { return time.Now().AddDate(50, 0, 0) }
		_, _, err := dialWith(o, creds)
		require.ErrorIs(t, err, transport.Untrusted)
		require.ErrorContains(t, err, "check the clock")
	})
	t.Run("a certificate that is not valid in 1970 is a clock not set", func(t *testing.T) {
		creds := credsOf(t, dev, dev.PrimaryKey)
		creds.Sign, creds.Now = nil, func() time.Time { return time.Unix(100, 0) }
		creds.Token = func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide("made elsewhere")}, nil
		}
		_, _, err := dialWith(byName(h, addr), creds)
		require.ErrorIs(t, err, transport.ClockUnset)
		require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope)
	})
	t.Run("nobody at the port is Network", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		_, _, err = dialWith(&Options{Network: netopt.Options{Addr: l.Addr().String()}}, credsOf(t, dev, dev.PrimaryKey))
		require.ErrorIs(t, err, transport.Network)
		require.ErrorContains(t, err, "refused")
	})
}

// byName returns options that trust the hub's authority; the transport verifies the name.
func byName(h *testbroker.Hub, addr string) *Options {
	c := h.ClientTLS()
	c.ServerName = ""
	return &Options{Network: netopt.Options{Addr: addr, TLS: c}}
}

// answering starts a TCP server that answers the first bytes with answer and closes.
func answering(t *testing.T, answer func(net.Conn)) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answer(c)
			_ = c.Close()
		}
	}()
	return l.Addr().String()
}

func TestPeersThatAreNoHubs(t *testing.T) {
	cert, pool := certify(t, "hub.example.test", time.Now())
	for name, c := range map[string]struct {
		answer func(net.Conn)
		plain  bool
		kind   transport.Kind
		text   string
	}{
		"HTTP where TLS is expected": {
			answer: func(c net.Conn) {
				_, _ = c.Read(make([]byte, 1))
				_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				_, _ = io.Copy(io.Discard, c)
			},
			kind: transport.Protocol, text: "does not speak TLS: check host and port",
		},
		"HTTP where MQTT is expected": {
			answer: func(c net.Conn) {
				_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
				_, _ = io.Copy(io.Discard, c)
			},
			plain: true, kind: transport.Protocol, text: "check host and port",
		},
		"a handshake cut short": {
			answer: func(c net.Conn) { _, _ = c.Read(make([]byte, 2000)) },
			kind:   transport.Network,
		},
		"a client certificate required": {
			answer: func(c net.Conn) {
				s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAnyClientCert})
				_ = s.Handshake()
				_, _ = io.Copy(io.Discard, c)
			},
			kind: transport.Unauthorized, text: "client certificate",
		},
		"no TLS version in common": {
			answer: func(c net.Conn) {
				s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}, MaxVersion: tls.VersionTLS11,
					MinVersion: tls.VersionTLS10})
				_ = s.Handshake()
				_, _ = io.Copy(io.Discard, c)
			},
			kind: transport.Unsupported,
		},
		"closed without a CONNACK": {
			answer: func(c net.Conn) {
				s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
				_, _ = s.Read(make([]byte, 2000))
				_ = s.Close()
			},
			kind: transport.Network, text: "the hub closed the connection",
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := &Options{Network: netopt.Options{Addr: answering(t, c.answer), Plaintext: c.plain,
				TLS: &tls.Config{RootCAs: pool}}}
			_, err := New(o).Dial(t.Context(), &transport.Config{Creds: testCreds(t), Sink: new(sink)})
			require.ErrorIs(t, err, c.kind, "%v", err)
			require.ErrorContains(t, err, c.text)
		})
	}
}

// Failed dials must leave no goroutine. (Eventually itself has one more while it polls.)
func TestDialsOverRealPortsLeaveNoGoroutine(t *testing.T) {
	h, dev, addr := realHub(t)
	before := runtime.NumGoroutine()
	for range 20 {
		_, err := New(&Options{Network: netopt.Options{Addr: addr, TLS: h.ClientTLS()}}).Dial(t.Context(),
			&transport.Config{Creds: credsOf(t, dev, testKey), Sink: new(sink)})
		require.Error(t, err)
	}
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= before+1 }, 5*time.Second, 10*time.Millisecond)
}

func credsOf(t testing.TB, dev hubdata.Device, key string) *transport.Credentials {
	sign, err := transport.SharedKey(key)
	require.NoError(t, err)
	return &transport.Credentials{Host: dev.HostName, DeviceID: dev.ID, ModuleID: dev.ModuleID, Sign: sign}
}
