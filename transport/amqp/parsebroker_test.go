package amqp_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// The user and password of a URL are those of SASL PLAIN. The peer is a hub, with one of its users.
func TestAClientConnectsWithAURL(t *testing.T) {
	for _, c := range []struct {
		scheme, at, host string
		port             testbroker.Port
	}{
		{"amqp", "127.0.0.1", "127.0.0.1", testbroker.PortAMQP},
		{"amqps", "127.0.0.1", "localhost", testbroker.PortAMQPS},
		{"amqps", "::1", "[::1]", testbroker.PortAMQPS},
	} {
		t.Run(c.scheme+" "+c.host, func(t *testing.T) {
			h, err := testbroker.New(nil)
			require.NoError(t, err)
			defer h.Close()
			dev, err := h.AddDevice("dev-1")
			require.NoError(t, err)
			addr, err := h.Listen(c.port, net.JoinHostPort(c.at, "0"))
			if err != nil && c.at == "::1" {
				t.Skipf("NOT TESTED: this machine has no ::1: %v", err)
			}
			require.NoError(t, err)
			_, port, err := net.SplitHostPort(addr.String())
			require.NoError(t, err)
			own, err := device.ParseConnectionString(dev.ConnectionString())
			require.NoError(t, err)
			token, err := own.NewToken(t.Context())
			require.NoError(t, err)
			hub, _, _ := strings.Cut(h.HostName(), ".")
			creds, opts, err := amqp.ParseBroker(c.scheme + "://" + url.QueryEscape("dev-1@sas."+hub) + ":" +
				url.PathEscape(token.Text.Reveal()) + "@" + c.host + ":" + port +
				"?device=dev-1&telemetry=/devices/{device}/messages/events")
			require.NoError(t, err)
			require.NotContains(t, fmt.Sprintf("%+v %+v", *creds, *opts), token.Text.Reveal())
			if c.port == testbroker.PortAMQPS {
				opts.Network.TLS = h.ClientTLS()
				opts.Network.TLS.ServerName = "" // the host of the URL is verified
			}
			client, err := device.New(creds, amqp.New(opts), &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
			require.NoError(t, err)
			defer client.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			require.NoError(t, client.Open(ctx))
			require.NoError(t, client.Send(ctx, &transport.Message{Body: []byte("21.5")}))
			require.Equal(t, "21.5", string(h.Messages()[0].Body))
		})
	}
}

func TestParseBroker(t *testing.T) {
	creds, opts, err := amqp.ParseBroker("amqps://u@b?device=d&module=m&telemetry=/queues/up&commands=/queues/{device}")
	require.NoError(t, err)
	require.Equal(t, &transport.Credentials{Host: "b", DeviceID: "d", ModuleID: "m", UserName: "u"}, creds)
	require.Equal(t, &amqp.Options{Network: netopt.Options{Addr: "b:5671"},
		Addresses: &amqp.Addresses{Telemetry: "/queues/up", Commands: "/queues/{device}"}}, opts)
	creds, opts, err = amqp.ParseBroker("amqp://b?device=d&telemetry=q")
	require.NoError(t, err)
	require.Nil(t, creds.Token)
	require.Equal(t, netopt.Options{Addr: "b:5672", Plaintext: true, Anonymous: true}, opts.Network)

	creds, opts, err = amqp.ParseBroker("mqtt://u:secret@b?device=d")
	require.Nil(t, creds)
	require.Nil(t, opts)
	require.ErrorIs(t, err, transport.Invalid)
	require.ErrorContains(t, err, "its scheme mqtt is for MQTT")
	require.NotContains(t, err.Error(), "secret")
}
