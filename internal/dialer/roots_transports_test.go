package dialer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/fileupload"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"

	hubhttp "github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// stack is a transport over TLS.
type stack struct {
	name string
	port testbroker.Port
	make func(*transport.Credentials, netopt.Options) transport.Transport
}

var stacks = []stack{
	{"mqtt", testbroker.PortMQTTS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: n})
	}},
	{"mqtt over WebSocket", testbroker.PortHTTPS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		n.Tunnel = websocket.MQTT(nil)
		return mqtt.New(&mqtt.Options{Network: n})
	}},
	{"amqp", testbroker.PortAMQPS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		return amqp.New(&amqp.Options{Network: n})
	}},
	{"amqp over WebSocket", testbroker.PortHTTPS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		n.Tunnel = websocket.AMQP(nil)
		return amqp.New(&amqp.Options{Network: n})
	}},
	{"http", testbroker.PortHTTPS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		return hubhttp.New(&hubhttp.Options{Network: n})
	}},
	{"http/2", testbroker.PortHTTPS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
		return hubhttp.New(&hubhttp.Options{Network: n, HTTP2: true})
	}},
}

// bundle is a source of roots: of another hub until a refusal with renewed set, then of the hub.
type bundle struct {
	former, current *x509.CertPool
	renewed         atomic.Bool
	refusals        atomic.Int32
	answered        atomic.Pointer[x509.CertPool]
}

func newBundle(t *testing.T, h *testbroker.Hub) *bundle {
	b := &bundle{former: hubfixture.Open(t, nil).ClientTLS().RootCAs, current: h.ClientTLS().RootCAs}
	b.answered.Store(b.former)
	return b
}

func (b *bundle) roots(_ context.Context, refused error) (*x509.CertPool, error) {
	if refused != nil {
		b.refusals.Add(1)
		if b.renewed.Load() {
			b.answered.Store(b.current)
		}
	}
	return b.answered.Load(), nil
}

// withBundle runs f in a bubble for each transport, with a client that makes no retries.
func withBundle(t *testing.T, f func(t *testing.T, h *hubfixture.Broker, b *bundle, c *device.Client)) {
	for _, s := range stacks {
		testkit.Run(t, s.name, func(t *testing.T) {
			h := hubfixture.New(t)
			b := newBundle(t, h.Hub)
			creds := h.CredsWith(t, "")
			tr := s.make(creds, netopt.Options{Dial: h.Dial(s.port), RootCAs: b.roots})
			c, err := device.New(creds, tr, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			f(t, h, b, c)
		})
	}
}

func TestEachTransportUsesNewerRootsWithinTheSameDial(t *testing.T) {
	withBundle(t, func(t *testing.T, h *hubfixture.Broker, b *bundle, c *device.Client) {
		b.renewed.Store(true)
		require.NoError(t, c.Open(t.Context()))
		require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		require.Equal(t, int32(1), b.refusals.Load())
		require.Len(t, h.Messages(), 1)
	})
}

func TestEachTransportMayRetryAfterACertificateThatDoesNotVerifyYet(t *testing.T) {
	withBundle(t, func(t *testing.T, _ *hubfixture.Broker, b *bundle, c *device.Client) {
		err := c.Open(t.Context())
		require.ErrorIs(t, err, transport.Unavailable)
		require.NotErrorIs(t, err, transport.Untrusted)
		require.ErrorIs(t, err, transport.RetryExpired, "the policy was asked, so the failure is retryable")
		require.Equal(t, int32(1), b.refusals.Load())
		b.renewed.Store(true)
		require.NoError(t, c.Open(t.Context()))
	})
}

func TestEachTransportVerifiesTheHostWithRootsThatChange(t *testing.T) {
	withBundle(t, func(t *testing.T, h *hubfixture.Broker, b *bundle, c *device.Client) {
		b.answered.Store(b.current)
		require.NoError(t, h.PresentName("other.example.test"))
		err := c.Open(t.Context())
		require.ErrorIs(t, err, transport.Unavailable)
		_, ok := errors.AsType[x509.HostnameError](err)
		require.True(t, ok, "%v", err)
	})
}

// Roots of StorageTLS hold for storage, without RootCAs.
func TestUploadsUseRootsThatChange(t *testing.T) {
	for _, own := range []bool{false, true} {
		testkit.Bubble(t, func(t *testing.T) {
			h := hubfixture.New(t)
			b := newBundle(t, h.Hub)
			b.renewed.Store(true)
			o := &fileupload.Options{Network: netopt.Options{Dial: h.Dial(testbroker.PortHTTPS), RootCAs: b.roots}}
			if own {
				o.StorageTLS = &tls.Config{RootCAs: b.former}
			}
			u, err := fileupload.New(h.CredsWith(t, ""), o)
			require.NoError(t, err)
			defer func() { require.NoError(t, u.Close()) }()
			_, err = u.Upload(t.Context(), "log.txt", strings.NewReader("sunny"), 5)
			require.Equal(t, own, errors.Is(err, transport.Untrusted), "%v", err)
			require.Equal(t, own, err != nil, "%v", err)
			require.Equal(t, int32(1), b.refusals.Load(), "storage is dialed with the roots of then")
		})
	}
}
