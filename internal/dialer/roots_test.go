package dialer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// certificateOf returns a self-signed certificate for a host name, valid from one hour ago.
func certificateOf(t *testing.T, host string) (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

const gatewayName = "gateway.local"

// rootsFixture is a dialer with RootCAs, and the gateway that it connects to.
type rootsFixture struct {
	d       *Dialer
	server  *tls.Config
	current *x509.CertPool // verify the gateway
	former  *x509.CertPool // do not
	refusal []error        // the arguments of the calls of RootCAs

	connections int
	peers       sync.WaitGroup
}

// withRoots runs f in a bubble. answer is Network.RootCAs.
func withRoots(t *testing.T, answer func(*rootsFixture, context.Context, error) (*x509.CertPool, error),
	f func(*testing.T, *rootsFixture)) {
	synctest.Test(t, func(t *testing.T) {
		cert, current := certificateOf(t, gatewayName)
		_, former := certificateOf(t, gatewayName)
		x := &rootsFixture{server: &tls.Config{Certificates: []tls.Certificate{cert}}, current: current, former: former}
		x.d = &Dialer{Protocol: proto, Network: netopt.Options{Dial: x.connect,
			RootCAs: func(ctx context.Context, refused error) (*x509.CertPool, error) {
				x.refusal = append(x.refusal, refused)
				return answer(x, ctx, refused)
			}}}
		require.NoError(t, x.d.Resolve())
		f(t, x)
		x.peers.Wait()
	})
}

func (x *rootsFixture) connect(context.Context, string, string) (net.Conn, error) {
	near, far := memconn.Pair("near:1", "far:1")
	x.connections++
	x.peers.Go(func() {
		s := tls.Server(far, x.server)
		_, _ = io.Copy(s, s)
		_ = far.Close()
	})
	return near, nil
}

// dial returns the connection, or the error as a transport reports it.
func (x *rootsFixture) dial(ctx context.Context) (*tls.Conn, *transport.Error) {
	outer, _, err := x.d.Dial(ctx, &transport.Credentials{Host: "hub.example.test", GatewayHost: gatewayName,
		DeviceID: "d"}, nil)
	if err != nil {
		return nil, x.d.Protocol.Error(err)
	}
	return outer.(*tls.Conn), nil
}

// whenRefused returns the former roots first, and the current ones after a refusal.
func whenRefused(x *rootsFixture, _ context.Context, refused error) (*x509.CertPool, error) {
	if refused == nil {
		return x.former, nil
	}
	return x.current, nil
}

func TestNewerRootsAreUsedWithinTheSameDial(t *testing.T) {
	withRoots(t, whenRefused, func(t *testing.T, x *rootsFixture) {
		x.d.Network.TLS = &tls.Config{RootCAs: x.former}
		c, failed := x.dial(t.Context())
		require.Nil(t, failed)
		require.NoError(t, c.Close())
		require.Equal(t, 2, x.connections)
		require.Len(t, x.refusal, 2)
		require.NoError(t, x.refusal[0])
		_, ok := errors.AsType[*tls.CertificateVerificationError](x.refusal[1])
		require.True(t, ok, "%v", x.refusal[1])
		require.Equal(t, x.former, x.d.Network.TLS.RootCAs, "the caller's config is not touched")
	})
}

func TestRootsThatVerifyAreAskedForOnce(t *testing.T) {
	withRoots(t, func(x *rootsFixture, _ context.Context, _ error) (*x509.CertPool, error) { return x.current, nil },
		func(t *testing.T, x *rootsFixture) {
			for range 2 {
				c, failed := x.dial(t.Context())
				require.Nil(t, failed)
				require.NoError(t, c.Close())
			}
			require.Equal(t, []error{nil, nil}, x.refusal)
			require.Equal(t, 2, x.connections)
		})
}

func TestWithoutNewerRootsTheFailureIsRetryable(t *testing.T) {
	other := func(*rootsFixture) *x509.CertPool { _, p := certificateOf(t, "x"); return p }
	for name, c := range map[string]struct {
		newer       func(*rootsFixture) *x509.CertPool
		connections int
	}{
		"the same pool":           {func(x *rootsFixture) *x509.CertPool { return x.former }, 1},
		"an equal pool":           {func(x *rootsFixture) *x509.CertPool { return x.former.Clone() }, 1},
		"other roots, also wrong": {other, 2},
	} {
		t.Run(name, func(t *testing.T) {
			withRoots(t, func(x *rootsFixture, _ context.Context, refused error) (*x509.CertPool, error) {
				if refused == nil {
					return x.former, nil
				}
				return c.newer(x), nil
			}, func(t *testing.T, x *rootsFixture) {
				_, failed := x.dial(t.Context())
				require.Equal(t, transport.Unavailable, failed.Kind)
				require.True(t, errfilter.Retryable(failed))
				require.ErrorContains(t, failed, "signed by unknown authority")
				require.ErrorContains(t, failed, "retryable, because")
				_, ok := errors.AsType[x509.UnknownAuthorityError](failed)
				require.True(t, ok, "the cause stays reachable")
				require.Equal(t, c.connections, x.connections)
				require.Len(t, x.refusal, 2)
			})
		})
	}
}

// Other roots do not help against a certificate for another host, so they are not asked for.
func TestTheHostIsVerifiedWithRootsThatChange(t *testing.T) {
	withRoots(t, func(x *rootsFixture, _ context.Context, _ error) (*x509.CertPool, error) { return x.current, nil },
		func(t *testing.T, x *rootsFixture) {
			cert, roots := certificateOf(t, "other.local")
			x.server.Certificates, x.current = []tls.Certificate{cert}, roots
			_, failed := x.dial(t.Context())
			require.Equal(t, transport.Unavailable, failed.Kind)
			_, ok := errors.AsType[x509.HostnameError](failed)
			require.True(t, ok, "%v", failed)
			require.Equal(t, []error{nil}, x.refusal)
			require.Equal(t, 1, x.connections)
		})
}

func TestACertificateOfTheFutureIsStillAClockNotSet(t *testing.T) {
	withRoots(t, whenRefused, func(t *testing.T, x *rootsFixture) {
		x.d.Network.TLS = &tls.Config{Time: func() time.Time { return time.Unix(1000, 0) }}
		_, failed := x.dial(t.Context())
		require.Equal(t, transport.ClockUnset, failed.Kind)
	})
}

func TestFailuresOfRootCAs(t *testing.T) {
	type answer = func(ctx context.Context) (*x509.CertPool, error)
	for name, c := range map[string]struct {
		answer answer
		kind   transport.Kind
		text   string
	}{
		"an error": {func(context.Context) (*x509.CertPool, error) { return nil, errors.New("no daemon") },
			transport.Network, "roots of the server: no daemon"},
		"an error with a Kind": {func(context.Context) (*x509.CertPool, error) {
			return nil, &transport.Error{Kind: transport.Throttled, Err: errors.New("busy")}
		}, transport.Throttled, "busy"},
		"a Kind":  {func(context.Context) (*x509.CertPool, error) { return nil, transport.Quota }, transport.Quota, "roots"},
		"no pool": {func(context.Context) (*x509.CertPool, error) { return nil, nil }, transport.Invalid, "no roots"},
		"a panic": {func(context.Context) (*x509.CertPool, error) { panic("why") }, transport.Network, "panicked: why"},
		"a Goexit": {func(context.Context) (*x509.CertPool, error) { runtime.Goexit(); return nil, nil },
			transport.Network, "Goexit"},
		"a late answer": {late, transport.Timeout, "deadline"},
	} {
		t.Run(name, func(t *testing.T) {
			withRoots(t, func(_ *rootsFixture, ctx context.Context, _ error) (*x509.CertPool, error) {
				return c.answer(ctx)
			}, func(t *testing.T, x *rootsFixture) { requireFailure(t, x, c.kind, c.text, 0) })
		})
		t.Run(name+" after a refusal", func(t *testing.T) {
			withRoots(t, func(x *rootsFixture, ctx context.Context, refused error) (*x509.CertPool, error) {
				if refused == nil {
					return x.former, nil
				}
				return c.answer(ctx)
			}, func(t *testing.T, x *rootsFixture) {
				failed := requireFailure(t, x, c.kind, c.text, 1)
				require.ErrorContains(t, failed, "signed by unknown authority")
				require.ErrorContains(t, failed, "newer roots are not available")
			})
		})
	}
}

// late returns when ctx ends.
func late(ctx context.Context) (*x509.CertPool, error) {
	<-ctx.Done()
	return nil, errors.New("too late")
}

func requireFailure(t *testing.T, x *rootsFixture, kind transport.Kind, text string, connections int) *transport.Error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	_, failed := x.dial(ctx)
	require.Equal(t, kind, failed.Kind, "%v", failed)
	require.Equal(t, transport.ScopeConnection, failed.Scope)
	require.Equal(t, transport.OpDial, failed.Op)
	require.ErrorContains(t, failed, text)
	require.Equal(t, connections, x.connections)
	require.LessOrEqual(t, time.Since(began), time.Minute)
	return failed
}

func TestWithoutRootCAsACertificateIsUntrusted(t *testing.T) {
	withRoots(t, whenRefused, func(t *testing.T, x *rootsFixture) {
		x.d.Network.RootCAs, x.d.Network.TLS = nil, &tls.Config{RootCAs: x.former}
		_, failed := x.dial(t.Context())
		require.Equal(t, transport.Untrusted, failed.Kind)
		require.Equal(t, 1, x.connections)
	})
}

func TestOtherTLSFailuresDoNotAskForRoots(t *testing.T) {
	withRoots(t, func(x *rootsFixture, _ context.Context, _ error) (*x509.CertPool, error) { return x.current, nil },
		func(t *testing.T, x *rootsFixture) {
			x.server.MaxVersion = tls.VersionTLS12
			x.d.Network.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
			_, failed := x.dial(t.Context())
			require.Equal(t, transport.Unsupported, failed.Kind)
			require.Equal(t, []error{nil}, x.refusal)
		})
}

// Sessions are resumed as long as the roots verify them, server names and ALPN are sent.
func TestTLSSettingsStayWithRootsThatChange(t *testing.T) {
	withRoots(t, func(x *rootsFixture, _ context.Context, _ error) (*x509.CertPool, error) { return x.current, nil },
		func(t *testing.T, x *rootsFixture) {
			x.server.NextProtos = []string{"mqtt"}
			x.d.Network.TLS = &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(2), NextProtos: []string{"mqtt"}}
			for i, resumed := range []bool{false, true, false} {
				if i == 2 { // the root is withdrawn, and another one is good
					cert, roots := certificateOf(t, gatewayName)
					x.server.Certificates, x.current = []tls.Certificate{cert}, roots
				}
				c, failed := x.dial(t.Context())
				require.Nil(t, failed)
				_, err := c.Write([]byte("x"))
				require.NoError(t, err)
				_, err = c.Read(make([]byte, 1)) // the ticket comes with it
				require.NoError(t, err)
				state := c.ConnectionState()
				require.Equal(t, resumed, state.DidResume, i)
				require.Equal(t, "mqtt", state.NegotiatedProtocol)
				require.Equal(t, gatewayName, state.ServerName)
				require.NoError(t, c.Close())
			}
		})
}

func TestRootsNeedTLS(t *testing.T) {
	withRoots(t, whenRefused, func(t *testing.T, x *rootsFixture) {
		x.d.Network.Plaintext = true
		require.ErrorContains(t, x.d.Resolve(), "both Plaintext and RootCAs are set")
	})
}

// The roots verify the server alone. Certificates of others, such as a proxy or the server of a
// tunnel, have their own.
func TestCertificatesOfOthersDoNotAskForRoots(t *testing.T) {
	untrusted := fmt.Errorf("proxy p:443: %w", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}})
	for name, set := range map[string]func(*netopt.Options){
		"a proxy": func(o *netopt.Options) {
			o.Proxy = func(*url.URL, netopt.DialFunc) (netopt.DialFunc, error) {
				return func(context.Context, string, string) (net.Conn, error) { return nil, untrusted }, nil
			}
		},
		"a socket": func(o *netopt.Options) {
			o.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, untrusted }
		},
		"a tunnel": func(o *netopt.Options) { o.Tunnel = failingTunnel{untrusted} },
	} {
		t.Run(name, func(t *testing.T) {
			withRoots(t, func(x *rootsFixture, _ context.Context, _ error) (*x509.CertPool, error) { return x.current, nil },
				func(t *testing.T, x *rootsFixture) {
					set(&x.d.Network)
					_, failed := x.dial(t.Context())
					require.Equal(t, transport.Untrusted, failed.Kind)
					require.False(t, errfilter.Retryable(failed))
					require.ErrorContains(t, failed, "proxy p:443")
					require.NotContains(t, failed.Error(), "RootCAs")
					require.Equal(t, []error{nil}, x.refusal)
				})
		})
	}
}

// failingTunnel is a tunnel that cannot be opened.
type failingTunnel struct{ err error }

func (f failingTunnel) Open(context.Context, net.Conn, netopt.Peer) (net.Conn, error) {
	return nil, f.err
}
func (f failingTunnel) Port(bool) string { return "443" }
