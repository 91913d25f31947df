package dialer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// handshakes connects three times over one transport and returns whether each TLS session was
// resumed. change is called before the third one.
func handshakes(t *testing.T, h *testbroker.Hub, s stack, creds *transport.Credentials, o netopt.Options,
	change func()) []bool {
	var resumed []bool
	o.Dial = h.Dial(s.port)
	if o.TLS == nil {
		o.TLS = h.ClientTLS()
	}
	o.TLS.VerifyConnection = func(cs tls.ConnectionState) error {
		resumed = append(resumed, cs.DidResume)
		return nil
	}
	tr := s.make(creds, o)
	for i := range 3 {
		if i == 2 {
			change()
		}
		c, err := device.New(creds, tr, nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		require.NoError(t, c.Close())
	}
	return resumed
}

// Every transport resumes TLS when it connects again with a token. With a certificate it does so
// only in a cache of the program's own, and never with the session of another certificate.
func TestAReconnectResumesTLS(t *testing.T) {
	for _, s := range stacks {
		testkit.Run(t, s.name, func(t *testing.T) {
			h := hubfixture.New(t)
			creds := h.CredsWith(t, "")
			require.Equal(t, []bool{false, true, true}, handshakes(t, h.Hub, s, creds, netopt.Options{}, func() {}))

			now := time.Now()
			first := testbroker.NewClientCert("x", now.Add(-time.Hour), now.Add(time.Hour))
			second := testbroker.NewClientCert("x", now.Add(-time.Hour), now.Add(time.Hour))
			var prints []string
			for _, c := range []tls.Certificate{first, second} {
				leaf, err := x509.ParseCertificate(c.Certificate[0])
				require.NoError(t, err)
				prints = append(prints, testbroker.Thumbprint(leaf))
			}
			d, err := h.AddDeviceX509("x", prints...)
			require.NoError(t, err)
			proven := &transport.Credentials{Host: creds.Host, DeviceID: d.ID}
			for _, cache := range []tls.ClientSessionCache{nil, tls.NewLRUClientSessionCache(2)} {
				current := &first
				o := netopt.Options{TLS: h.ClientTLS(),
					Certificate: func(context.Context) (*tls.Certificate, error) { return current, nil }}
				o.TLS.ClientSessionCache = cache
				require.Equal(t, []bool{false, cache != nil, false},
					handshakes(t, h.Hub, s, proven, o, func() { current = &second }))
			}
		})
	}
}

// A program that must see each certificate, or wants no tickets, gets whole handshakes.
func TestNoResumptionAgainstTheProgramsWill(t *testing.T) {
	for name, set := range map[string]func(*tls.Config){
		"tickets off": func(c *tls.Config) { c.SessionTicketsDisabled = true },
		"VerifyPeerCertificate": func(c *tls.Config) {
			c.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return nil }
		},
		"its own certificates": func(c *tls.Config) {
			c.Certificates = []tls.Certificate{testbroker.NewClientCert("d", time.Now(), time.Now().Add(time.Hour))}
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := hubfixture.New(t)
			o := netopt.Options{TLS: h.ClientTLS()}
			set(o.TLS)
			require.Equal(t, []bool{false, false, false},
				handshakes(t, h.Hub, stacks[0], h.CredsWith(t, ""), o, func() {}))
		})
	}
}

// A session does not carry the trust of the connection that it began on: neither other roots nor
// none.
func TestAResumptionVerifiesWithItsOwnRoots(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		creds := h.CredsWith(t, "")
		open := func(config *tls.Config) error {
			tr := stacks[0].make(creds, netopt.Options{TLS: config, Dial: h.Dial(stacks[0].port)})
			c, err := device.New(creds, tr, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			return c.Open(t.Context())
		}
		for name, first := range map[string]*tls.Config{"verified": h.ClientTLS(), "unverified": {InsecureSkipVerify: true}} {
			require.NoError(t, open(first), name)
			require.ErrorContains(t, open(&tls.Config{RootCAs: x509.NewCertPool()}), "certificate", name)
		}
	})
}
