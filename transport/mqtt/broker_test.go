package mqtt_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
	"github.com/hubline-iot/hubline/transport/websocket"
)

// With certificate, WebSocket and TLS together, the request does not carry iothub-no-client-cert.
func TestACertificateOverWebSocket(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		cert := testbroker.NewClientCert("dev-x", time.Time{}, time.Time{})
		_, err := h.AddDeviceX509("dev-x", testbroker.Thumbprint(cert.Leaf))
		require.NoError(t, err)
		o := &mqtt.Options{Network: netopt.Options{Tunnel: websocket.MQTT(nil), Dial: h.Dial(testbroker.PortHTTPS),
			TLS: h.ClientTLS()}}
		o.Network.Certificate = func(context.Context) (*tls.Certificate, error) { return &cert, nil }
		ctx, cancel := context.WithCancel(t.Context())
		creds := &transport.Credentials{Host: h.HostName(), DeviceID: "dev-x"}
		s, err := mqtt.New(o).Dial(ctx, &transport.Config{Creds: creds, Window: 1, Sink: endAfterFirst{cancel}})
		require.NoError(t, err)
		s.Send([]transport.Item{{Msg: &transport.Message{Body: []byte("x")}}})
		require.Error(t, s.Run(ctx))
		require.Len(t, h.Messages(), 1)
	})
}
