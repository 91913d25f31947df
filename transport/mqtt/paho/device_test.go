package paho_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
)

func TestADeviceWithACertificateAnnouncesItsModel(t *testing.T) {
	h, err := testbroker.New(nil)
	require.NoError(t, err)
	defer h.Close()
	certificate := func() (*tls.Certificate, string) {
		cert := testbroker.NewClientCert("dev-1", time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		leaf, err := x509.ParseCertificate(cert.Certificate[0])
		require.NoError(t, err)
		return &cert, testbroker.Thumbprint(leaf)
	}
	enrolled, thumbprint := certificate()
	_, err = h.AddDeviceX509("dev-1", thumbprint)
	require.NoError(t, err)
	const model = "dtmi:com:example:Thermostat;1"
	open := func(cert *tls.Certificate) error {
		network := netopt.Options{Dial: h.Dial(testbroker.PortMQTTS), TLS: h.ClientTLS(),
			Certificate: func(context.Context) (*tls.Certificate, error) { return cert, nil }}
		creds := &transport.Credentials{Host: testbroker.DefaultHostName, DeviceID: "dev-1"}
		c, err := device.New(creds, paho.New(&mqtt.Options{Network: network, ModelID: model}), nil)
		require.NoError(t, err)
		defer c.Close()
		return c.Open(t.Context())
	}

	require.NoError(t, open(enrolled))
	twin, err := h.Twin("dev-1")
	require.NoError(t, err)
	require.Equal(t, model, twin.ModelID)

	other, _ := certificate()
	require.ErrorIs(t, open(other), transport.Unauthorized, "another certificate")
}
