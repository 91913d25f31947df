package interop

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/mqtt/paho"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// hublineSender is a device client over any transport.
type hublineSender struct {
	client *device.Client
}

// newHublineSender opens a client over the transport that make returns. make gets the ledger to
// tap connections with.
func newHublineSender(t testing.TB, make func(l *ledger) (*transport.Credentials, transport.Transport),
) func(l *ledger) sender {
	return func(l *ledger) sender {
		creds, over := make(l)
		c, err := device.New(creds, over, &device.Options{
			Window: siegeWindow, RetryPolicy: siegePolicy{}, PacedPolicy: siegePolicy{},
		})
		require.NoError(t, err)
		require.NoError(t, c.Open(soon(t)))
		t.Cleanup(func() { _ = c.Close() })
		return &hublineSender{c}
	}
}

func (s *hublineSender) send(_ int, body []byte) func() error {
	ctx, cancel := context.WithTimeout(context.Background(), siegeLimit)
	var r device.Receipt
	if err := s.client.Enqueue(ctx, &transport.Message{Body: body}, &r); err != nil {
		cancel()
		return func() error { return err }
	}
	return func() error {
		defer cancel()
		return r.Wait(ctx)
	}
}

func (s *hublineSender) close() { _ = s.client.Close() }

// siegePolicy has the delay of every client in these tests.
type siegePolicy struct{}

func (siegePolicy) Decide(retrypolicy.Attempt) retrypolicy.Decision {
	return retrypolicy.Decision{Retry: true, Delay: siegeBackoff}
}

// brokerCreds are those of a device at a broker with user name and password.
func brokerCreds(device, user, password string) *transport.Credentials {
	c := &transport.Credentials{Host: hostName, DeviceID: device}
	if user != "" {
		c.UserName, c.Token = user, transport.FixedToken(password)
	}
	return c
}

// mqttClient is one of Hubline's ways to speak MQTT.
type mqttClient struct {
	name string
	make func(network netopt.Options, topics *dialect.Topics, will *transport.Message) transport.Transport
}

const siegeKeepAlive = 10 * time.Second // of every client

var (
	hublinePaho = mqttClient{"Hubline on paho, 3.1.1", func(network netopt.Options, topics *dialect.Topics,
		will *transport.Message) transport.Transport {
		return paho.New(&mqtt.Options{Network: network, Dialect: topics, Will: will, KeepAlive: siegeKeepAlive})
	}}
	hublineMQTT = mqttClient{"Hubline, 3.1.1", func(network netopt.Options, topics *dialect.Topics,
		will *transport.Message) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: network, Dialect: topics, Will: will, KeepAlive: siegeKeepAlive})
	}}
	hublineMQTT5 = mqttClient{"Hubline, MQTT 5", func(network netopt.Options, topics *dialect.Topics,
		will *transport.Message) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: network, Dialect: topics, Will: will, KeepAlive: siegeKeepAlive,
			Protocol: mqtt.MQTT5(nil)})
	}}
)

// addMQTT adds a device for each of the clients, over plain connections to any of the nodes.
func (s *siege) addMQTT(a account, clients ...mqttClient) {
	for i, m := range clients {
		s.add(m.name, true, newHublineSender(s.t, func(l *ledger) (*transport.Credentials, transport.Transport) {
			creds := brokerCreds(fmt.Sprintf("device-%d", i), a.user, a.password)
			network := netopt.Options{Plaintext: true, Dial: tapped(netopt.Failover(nil, a.addrs...), tapMQTT, l)}
			return creds, m.make(network, &dialect.Topics{Telemetry: "site/{device}/up"}, nil)
		}))
		s.loads[len(s.loads)-1].anew = m.name == hublinePaho.name
	}
}
