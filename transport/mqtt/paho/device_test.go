package paho_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
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

// A hub that kept the session delivers as soon as the device is back, here more than may wait for a
// handler.
func TestAHandlerRegisteredAfterOpenGetsWhatCameBefore(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h := hubfixture.New(t)
		o := &mqtt.Options{Network: netopt.Options{Plaintext: true, Dial: h.Dial(testbroker.PortMQTT)}}
		got := make(chan string, 100)
		handle := func(_ context.Context, m *transport.Message) error {
			got <- string(m.Body)
			return nil
		}
		first, err := device.New(h.CredsWith(t, ""), paho.New(o), nil)
		require.NoError(t, err)
		first.HandleMessages(handle)
		require.NoError(t, first.Open(t.Context()))
		require.NoError(t, first.Close())
		const n = 2 * mqttwire.MaxBacklog / hubdata.MaxC2D
		for i := range n {
			body := strings.Repeat(string(rune('A'+i)), hubdata.MaxC2D-1000)
			require.NoError(t, h.SendC2D("dev-1", hubdata.C2D{Body: []byte(body)}))
		}
		c, err := device.New(h.CredsWith(t, ""), paho.New(o), nil)
		require.NoError(t, err)
		require.NoError(t, c.Open(t.Context()))
		synctest.Wait()
		c.HandleMessages(handle)
		time.Sleep(time.Minute)
		require.Len(t, got, n)
		for i := range n {
			require.Equal(t, string(rune('A'+i)), (<-got)[:1])
		}
		require.EqualValues(t, 2, c.Stats().Connections, "the second brings what was beyond the bound")
		require.NoError(t, c.Close())
	})
}

// A message of more than a megabyte is skipped, acknowledged and reported. On a slow link, answers
// behind a large one are late, which ends neither an attempt to connect nor a connection.
func TestALargeMessageIsSkipped(t *testing.T) {
	for name, c := range map[string]struct {
		size, rate int
		pause      time.Duration // after 62 s
		first      bool          // before the SUBACK
	}{
		"connected":               {1 << 20, 10_000, 0, false},
		"while subscribing":       {1 << 20, 10_000, 0, true},
		"slower":                  {1 << 20, 5_000, 0, false},
		"with a pause":            {1 << 20, 10_000, 4 * time.Second, false},
		"kept":                    {400_000, 10_000, 0, false},
		"kept, while subscribing": {400_000, 10_000, 0, true},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			n := memconn.NewNetwork("broker.example:1883")
			defer n.Close()
			settled := make(chan bool, 1)
			go func() {
				conn, err := n.Accept()
				if err != nil {
					return
				}
				l := testkit.NewMQTTLink(t, conn)
				l.Expect(0x10)
				l.Send(0x20, 2, 0, 0)
				id := l.Expect(0x82).Body[:2]
				answer := testkit.MQTTBytes(0x90, string(id), "\x01")
				if !c.first {
					l.Send(answer...)
					id := l.Expect(0x32).Rest()[:2]
					answer = testkit.MQTTBytes(0x40, id)
				}
				large := testkit.MQTTBytes(0x32, testkit.MQTTText("down"), "\x00\x07", strings.Repeat("x", c.size))
				for i := 0; len(large) > 0; i++ {
					if i == 62 {
						time.Sleep(c.pause)
					}
					part := large[:min(c.rate, len(large))]
					large = large[len(part):]
					if _, err := l.Write(part); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
				l.Send(answer...)
				for {
					p, err := l.Next()
					switch {
					case err != nil:
						return
					case p.First == 0x40:
						settled <- string(p.Body) == "\x00\x07"
					case p.First == 0x32:
						l.Send(testkit.MQTTBytes(0x40, p.Rest()[:2])...)
					case p.First == 0xc0:
						l.Send(0xd0, 0)
					}
				}
			}()
			reports := make(chan error, 2)
			client, err := device.New(&transport.Credentials{Host: "broker.example", DeviceID: "dev-1"},
				paho.New(&mqtt.Options{Network: netopt.Options{Plaintext: true, Dial: n.DialContext},
					Dialect: &mqtt.Topics{Telemetry: "up", Commands: []string{"down"}}}),
				&device.Options{Trace: &device.Trace{HandlerPanic: func(v any) { reports <- v.(error) }}})
			require.NoError(t, err)
			defer client.Close()
			require.NoError(t, client.HandleMessages(func(context.Context, *transport.Message) error { return nil }))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			require.NoError(t, client.Open(ctx))
			require.NoError(t, client.Send(t.Context(), &transport.Message{Body: []byte("a")}))
			if c.size == 1<<20 {
				require.ErrorIs(t, <-reports, transport.TooLarge)
			}
			require.True(t, <-settled)
			require.Empty(t, reports)
			require.EqualValues(t, 1, client.Stats().Attempts)
		})
	}
}
