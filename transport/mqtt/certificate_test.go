package mqtt

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// secureElement is a key that does not leave its chip.
type secureElement struct {
	crypto.Signer
	signatures int
}

func (e *secureElement) Sign(rand io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	e.signatures++
	return e.Signer.Sign(rand, digest, opts)
}

func always(cert *tls.Certificate) func(context.Context) (*tls.Certificate, error) {
	return func(context.Context) (*tls.Certificate, error) { return cert, nil }
}

// x509Creds are the credentials of a device without a key.
func x509Creds(id string) *transport.Credentials {
	return &transport.Credentials{Host: testbroker.DefaultHostName, DeviceID: id}
}

func clientCert(from, to time.Duration) *tls.Certificate {
	cert := testbroker.NewClientCert("dev-1", time.Now().Add(from), time.Now().Add(to))
	return &cert
}

func thumbprint(t testing.TB, cert *tls.Certificate) string {
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	require.NoError(t, err)
	return testbroker.Thumbprint(leaf)
}

func TestACertificateProvesTheIdentity(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h, err := testbroker.New(nil)
		require.NoError(t, err)
		defer h.Close()
		cert := clientCert(-time.Hour, time.Hour)
		_, err = h.AddDeviceX509("dev-1", thumbprint(t, cert))
		require.NoError(t, err)
		element := &secureElement{Signer: cert.PrivateKey.(crypto.Signer)}
		cert.PrivateKey = element

		ctx, cancel := context.WithCancel(t.Context())
		k := new(sink)
		tr := New(&Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS(),
			Certificate: always(cert)}})
		s, err := tr.Dial(ctx, &transport.Config{Creds: x509Creds("dev-1"), Window: 4, Sink: k})
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(time.Hour), s.Info().Expires, time.Second)
		r := run(t, s, k, ctx, cancel)
		r.send("hello")
		require.NoError(t, h.WaitMessages(ctx, 1))
		require.Equal(t, 1, element.signatures)

		_, err = New(&Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS(),
			Certificate: always(clientCert(-time.Hour, time.Hour))}}).
			Dial(ctx, &transport.Config{Creds: x509Creds("dev-1"), Sink: k})
		require.ErrorIs(t, err, transport.Unauthorized, "another certificate")
		cancel()
		require.Error(t, <-r.ran)
	})
}

// A certificate that the hub knows by its thumbprint has no issuer that the hub could name, so
// crypto/tls alone would not send it.
func TestTheCertificateIsSentWhateverAuthoritiesTheHubNames(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := h.options()
		server, roots := certify(t, "hub.example.test", time.Now())
		cert := clientCert(-time.Hour, time.Hour)
		o.Network.Plaintext, o.Network.TLS, o.Network.Certificate = false, &tls.Config{RootCAs: roots}, always(cert)
		h.wrap = func(c net.Conn) net.Conn {
			return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAnyClientCert,
				ClientCAs: roots})
		}
		r, l := start(t, h, o)
		peer := l.Conn.(*tls.Conn).ConnectionState().PeerCertificates
		require.Len(t, peer, 1)
		require.Equal(t, cert.Certificate[0], peer[0].Raw)
		require.Empty(t, r.ran)
	})
}

// A broker may have no certificate for a connection that resumed a TLS session, as one on Erlang.
func TestAReconnectShowsItsCertificate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		h := newHub(t)
		o := h.options()
		server, roots := certify(t, "hub.example.test", time.Now())
		o.Network.Plaintext, o.Network.TLS = false, &tls.Config{RootCAs: roots}
		o.Network.Certificate = always(clientCert(-time.Hour, time.Hour))
		config := &tls.Config{Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAnyClientCert}
		h.wrap = func(c net.Conn) net.Conn { return tls.Server(c, config) }
		for range 2 {
			s, k, ctx, cancel := dial(t, o, func() {
				l := h.accept()
				if l.Conn.(*tls.Conn).ConnectionState().DidResume {
					l.Send(typeConnack<<4, 2, 0, 5)
					return
				}
				l.Send(typeConnack<<4, 2, 0, 0)
				go func() { _, _ = l.Drain() }()
			})
			r := run(t, s, k, ctx, cancel)
			cancel()
			require.Error(t, <-r.ran)
		}
	})
}

func TestACertificateThatCannotWorkFailsBeforeTheDial(t *testing.T) {
	good, other := clientCert(-time.Hour, time.Hour), clientCert(-time.Hour, time.Hour)
	out := errors.New("slot 3 is empty")
	for name, c := range map[string]struct {
		certificate func(context.Context) (*tls.Certificate, error)
		kind        transport.Kind
		text        string
	}{
		"nil":   {always(nil), transport.Invalid, "client certificate: there is none"},
		"empty": {always(new(tls.Certificate)), transport.Invalid, "there is none"},
		"no key": {always(&tls.Certificate{Certificate: good.Certificate}), transport.Invalid,
			"no private key that can sign"},
		"a key of no use": {always(&tls.Certificate{Certificate: good.Certificate, PrivateKey: "key"}), transport.Invalid,
			"no private key that can sign"},
		"another's key": {always(&tls.Certificate{Certificate: good.Certificate, PrivateKey: other.PrivateKey}),
			transport.Invalid,
			"belongs to another"},
		"a chip's other key": {always(&tls.Certificate{Certificate: good.Certificate,
			PrivateKey: &secureElement{Signer: other.PrivateKey.(crypto.Signer)}}), transport.Invalid,
			"belongs to another"},
		"garbage": {always(&tls.Certificate{Certificate: [][]byte{{1, 2, 3}}, PrivateKey: good.PrivateKey}),
			transport.Invalid,
			"client certificate: x509"},
		"expired": {always(clientCert(-2*time.Hour, -time.Hour)), transport.Unauthorized, "expired at "},
		"an error": {func(context.Context) (*tls.Certificate, error) {
			return nil, out
		}, transport.Unauthorized, "client certificate: slot 3"},
		"a Kind": {func(context.Context) (*tls.Certificate, error) {
			return nil, transport.Network
		}, transport.Network, "client certificate"},
		"an error of ours": {func(context.Context) (*tls.Certificate, error) {
			return nil, &transport.Error{Kind: transport.Throttled, RetryAfter: 5, Err: out}
		}, transport.Throttled, "slot 3"},
		"a file not there": {netopt.CertificateFiles("/nowhere/cert.pem", "/nowhere/key.pem"), transport.Invalid,
			"/nowhere/cert.pem"},
		"no token, no cert": {nil, transport.Invalid, "nothing proves the identity"},
	} {
		t.Run(name, func(t *testing.T) {
			dials := 0
			o := &Options{Network: netopt.Options{Certificate: c.certificate,
				Dial: func(context.Context, string, string) (net.Conn, error) { dials++; return nil, syscall.ECONNREFUSED }}}
			_, err := New(o).Dial(t.Context(), &transport.Config{Creds: x509Creds("dev-1"), Sink: new(sink)})
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.text)
			e := transport.Find(err)
			require.Equal(t, transport.ScopeConnection, e.Scope)
			require.Equal(t, transport.OpDial, e.Op)
			require.Equal(t, "mqtt", e.Proto)
			require.Zero(t, dials)
			if c.kind == transport.Throttled {
				require.Equal(t, time.Duration(5), e.RetryAfter)
			}
		})
	}
}

// A new certificate is not valid yet by a device clock that is slightly behind; the hub's clock
// decides.
func TestACertificateThatIsNotValidYetIsLeftToTheHub(t *testing.T) {
	o := &Options{Network: netopt.Options{Certificate: always(clientCert(time.Hour, 2*time.Hour)),
		Dial: func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED }}}
	_, err := New(o).Dial(t.Context(), &transport.Config{Creds: x509Creds("dev-1"), Sink: new(sink)})
	require.ErrorIs(t, err, transport.Network)
}

func TestTheEndOfCtxEndsTheCertificate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		o := &Options{Network: netopt.Options{Certificate: func(ctx context.Context) (*tls.Certificate, error) {
			<-ctx.Done()
			return nil, errors.New("interrupted")
		}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := New(o).Dial(ctx, &transport.Config{Creds: x509Creds("dev-1"), Sink: new(sink)})
		require.ErrorIs(t, err, transport.Timeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// writePEM writes certificate and key.
func writePEM(t testing.TB, cert *tls.Certificate, certPath, keyPath string) {
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(certPath, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: cert.Certificate[0]}), 0o600))
	require.NoError(t, os.WriteFile(keyPath, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600))
}

// A renewed certificate is used by the next dial, without a restart.
func TestCertificateFilesAreReadAtEachDial(t *testing.T) {
	h, _, addr := realHub(t)
	first, second := clientCert(-time.Hour, time.Hour), clientCert(-time.Hour, time.Hour)
	_, err := h.AddDeviceX509("dev-x", thumbprint(t, first), thumbprint(t, second))
	require.NoError(t, err)
	dir := t.TempDir()
	certPath, keyPath := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	var shown []*tls.Certificate
	load := netopt.CertificateFiles(certPath, keyPath)
	o := &Options{Network: netopt.Options{Addr: addr, TLS: h.ClientTLS(),
		Certificate: func(ctx context.Context) (*tls.Certificate, error) {
			cert, err := load(ctx)
			shown = append(shown, cert)
			return cert, err
		}}}
	dial := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		s, err := New(o).Dial(ctx, &transport.Config{Creds: x509Creds("dev-x"), Sink: new(sink)})
		require.NoError(t, err)
		cancel()
		require.Error(t, s.Run(ctx))
	}
	writePEM(t, first, certPath, keyPath)
	dial()
	require.NoError(t, os.WriteFile(certPath, []byte("half a cert"), 0o600)) // a renewal in progress
	dial()
	writePEM(t, second, certPath, filepath.Join(dir, "other.pem")) // the key file still has the old one
	dial()
	writePEM(t, second, certPath, keyPath)
	dial()
	for i, want := range []*tls.Certificate{first, first, first, second} {
		require.Equal(t, want.Certificate, shown[i].Certificate, "dial %d", i)
	}
}

func TestCertificateFilesErrorsShowNoKey(t *testing.T) {
	dir := t.TempDir()
	certPath, keyPath := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, clientCert(-time.Hour, time.Hour), certPath, keyPath)
	key, err := os.ReadFile(keyPath)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(keyPath, key[:len(key)/2], 0o600))
	_, err = netopt.CertificateFiles(certPath, keyPath)(t.Context())
	require.ErrorIs(t, err, transport.Invalid)
	for _, line := range strings.Split(string(key), "\n") {
		if len(line) > 8 && !strings.HasPrefix(line, "---") {
			require.NotContains(t, err.Error(), line[:8])
		}
	}
}

// With TLS 1.3 the server checks the client's certificate after the client's handshake has ended:
// the refusal races with CONNECT.
func TestARefusedCertificateIsUnauthorized(t *testing.T) {
	server, roots := certify(t, "hub.example.test", time.Now())
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		addr := testkit.Serve(t, func(c net.Conn) {
			s := tls.Server(c, &tls.Config{
				Certificates: []tls.Certificate{server}, ClientAuth: tls.RequireAnyClientCert, MaxVersion: version,
				VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error { return errors.New("revoked") },
			})
			_ = s.Handshake() // and closes, ignoring what it received
		})
		told := 0
		for range 50 {
			o := &Options{Network: netopt.Options{Addr: addr, TLS: &tls.Config{RootCAs: roots},
				Certificate: always(clientCert(-time.Hour, time.Hour))}}
			_, err := New(o).Dial(t.Context(), &transport.Config{Creds: x509Creds("dev-1"), Sink: new(sink)})
			if errors.Is(err, syscall.ECONNRESET) {
				continue // the kernel discarded the alert
			}
			require.ErrorIs(t, err, transport.Unauthorized, "%v", err)
			require.False(t, errfilter.Retryable(err))
			told++
		}
		require.NotZero(t, told)
		t.Logf("%d of 50 refusals had a reason with %s", told, tls.VersionName(version))
	}
}
