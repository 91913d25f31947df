package interop

import (
	"context"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A device that knows mosquitto by a URL, whose password has every delimiter of URLs, at an IPv6
// address that its certificate names.
func TestMosquittoByURL(t *testing.T) {
	const user, password = "operator", "p@ss/w:rd?#%&+[ü] 1"
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		missing(t, "::1")
	} else {
		require.NoError(t, l.Close())
	}
	b := startBroker(t, settings{passwords: map[string]string{user: password}, ipv6: true})
	eventually(t, "mosquitto listens at "+b.ipv6, func() bool {
		c, err := net.Dial("tcp", b.ipv6)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	parse := func(t *testing.T, url string) (*transport.Credentials, *netopt.Options, func() transport.Transport) {
		creds, opts, err := mqtt.ParseBroker(url)
		require.NoError(t, err)
		return creds, &opts.Network, func() transport.Transport { return mqtt.New(opts) }
	}
	for _, version := range []string{"3.1.1", "5"} {
		t.Run("MQTT "+version, func(t *testing.T) {
			for typed, want := range map[string]transport.Kind{password: transport.Unknown, "another": transport.Unauthorized} {
				creds, network, make := parse(t, "mqtts://"+url.UserPassword(user, typed).String()+"@"+b.ipv6+
					"/?device=pump-1&telemetry=site/{device}/down/x&commands=site/{device}/+/%23&version="+version+
					"&will-topic=site/{device}/state&will-payload=gone&will-retain=true")
				network.TLS = b.trust()
				client, err := device.New(creds, make(), &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, client.Close()) })
				got := newInbox(client)
				err = client.Open(soon(t))
				if want != transport.Unknown {
					require.ErrorIs(t, err, want)
					require.NotContains(t, err.Error(), typed)
					continue
				}
				require.NoError(t, err)
				require.NoError(t, client.Send(soon(t), &transport.Message{Body: []byte("21.5")}))
				require.Equal(t, "site/pump-1/down/x 21.5", <-got)
				seen(t, "TLS to %s: a message was acknowledged and came back", b.ipv6)
			}
		})
	}
}

// newInbox returns a channel of the topics and bodies of the client's messages.
func newInbox(c *device.Client) <-chan string {
	got := make(chan string, 10)
	c.HandleMessages(func(_ context.Context, m *transport.Message) error {
		got <- m.Topic + " " + string(m.Body)
		return nil
	})
	return got
}
