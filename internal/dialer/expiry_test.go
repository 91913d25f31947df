package dialer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/amqp/goamqp"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A connection whose client certificate expires is replaced in time, and the next one uses the
// renewed certificate.
func TestAnExpiringCertificateIsReplaced(t *testing.T) {
	all := append([]stack{
		{"paho", testbroker.PortMQTTS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
			return paho.New(&mqtt.Options{Network: n})
		}},
		{"goamqp", testbroker.PortAMQPS, func(_ *transport.Credentials, n netopt.Options) transport.Transport {
			return goamqp.New(&amqp.Options{Network: n})
		}},
	}, stacks[:4]...)
	for _, s := range all {
		testkit.Run(t, s.name, func(t *testing.T) {
			h := hubfixture.New(t)
			expires := time.Now().Add(time.Hour)
			certs := []tls.Certificate{testbroker.NewClientCert("dev-x", time.Time{}, expires),
				testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})}
			certs[0].Leaf = nil // which is optional
			_, err := h.AddDeviceX509("dev-x", thumbprint(t, certs[0]), thumbprint(t, certs[1]))
			require.NoError(t, err)
			var calls atomic.Int32
			tr := s.make(nil, netopt.Options{Dial: h.Dial(s.port), TLS: h.ClientTLS(),
				Certificate: func(context.Context) (*tls.Certificate, error) {
					return &certs[min(int(calls.Add(1)), len(certs))-1], nil
				}})
			c, err := device.New(&transport.Credentials{Host: h.HostName(), DeviceID: "dev-x"}, tr, nil)
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Open(t.Context()))
			time.Sleep(40 * time.Minute)
			require.EqualValues(t, 1, calls.Load())
			time.Sleep(19 * time.Minute)
			require.EqualValues(t, 2, calls.Load())
			require.Equal(t, device.StateConnected, c.Status().State)
			time.Sleep(24 * time.Hour)
			require.EqualValues(t, 2, calls.Load())
		})
	}
}

func thumbprint(t *testing.T, cert tls.Certificate) string {
	t.Helper()
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	require.NoError(t, err)
	return testbroker.Thumbprint(leaf)
}
