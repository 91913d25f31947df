package interop

import (
	"context"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/autopaho/queue/memory"
	paho5 "github.com/eclipse/paho.golang/paho"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// A link that breaks up to ten times a second costs at most half as much time again as with
// autopaho and its queue, which dials at once. Nothing is lost, and our messages keep their order.
func TestALinkThatBreaksOftenBesideAutopaho(t *testing.T) {
	for _, every := range []time.Duration{100, 200, 400, 600} {
		every *= time.Millisecond
		t.Run(every.String(), func(t *testing.T) {
			t.Parallel()
			theirs := flapping(t, every, viaAutopaho)
			ours := flapping(t, every, viaHubline)
			t.Logf("20 resets, %v apart: %.1f s, autopaho %.1f s", every, ours.took.Seconds(), theirs.took.Seconds())
			t.Logf("out of order: %d, autopaho %d; copies: %d, autopaho %d", ours.early, theirs.early, ours.copies,
				theirs.copies)
			require.LessOrEqual(t, ours.took, theirs.took*3/2)
			require.Zero(t, ours.early)
			seen(t, "%v", every)
		})
	}
}

// flapped is the result of 500 messages a second over a link that breaks 20 times.
type flapped struct {
	took          time.Duration
	early, copies int
}

func flapping(t *testing.T, every time.Duration, open func(t *testing.T, a account) func(body []byte)) flapped {
	const resets, rate = 20, 500
	hub, dev := hubfixture.OpenDevice(t, &testbroker.Options{Broker: &testbroker.BrokerOptions{}}, deviceID)
	addr, err := hub.Listen(testbroker.PortMQTT, "127.0.0.1:0")
	require.NoError(t, err)
	r := newRelay(t, addr.String())
	enqueue := open(t, account{[]string{r.addr()}, deviceID, dev.PrimaryKey})
	began := time.Now()
	broken := make(chan struct{})
	go func() {
		defer close(broken)
		for range resets {
			time.Sleep(every)
			r.cut()
		}
	}()
	messages := int(resets * every * rate / time.Second)
	for i := range messages {
		enqueue([]byte(strconv.Itoa(i)))
		time.Sleep(time.Until(began.Add(time.Duration(i) * time.Second / rate)))
	}
	<-broken
	arrived := make(map[int]bool)
	got := flapped{}
	for checked, last := 0, -1; len(arrived) < messages; time.Sleep(5 * time.Millisecond) {
		require.Less(t, time.Since(began), time.Minute, "%d of %d", len(arrived), messages)
		for _, m := range hub.Messages()[checked:] {
			checked++
			i, err := strconv.Atoi(string(m.Body))
			require.NoError(t, err)
			switch {
			case arrived[i]:
				got.copies++
			case i < last:
				got.early++
			}
			arrived[i], last = true, max(last, i)
		}
	}
	got.took = time.Since(began)
	return got
}

func viaHubline(t *testing.T, a account) func(body []byte) {
	creds := &transport.Credentials{Host: "broker.example.test", DeviceID: deviceID, UserName: a.user,
		Token: func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide(a.password), Fixed: true}, nil
		}}
	c, err := device.New(creds, mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true, Addr: a.addrs[0]},
		Dialect: &dialect.Topics{Telemetry: "devices/{device}/up"}, Protocol: mqtt.MQTT5(nil)}), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Open(soon(t)))
	return func(body []byte) {
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: body}, nil))
	}
}

func viaAutopaho(t *testing.T, a account) func(body []byte) {
	ctx, cancel := context.WithCancel(t.Context())
	c, err := autopaho.NewConnection(ctx, autopaho.ClientConfig{
		ServerUrls: []*url.URL{{Scheme: "mqtt", Host: a.addrs[0]}}, KeepAlive: 60, SessionExpiryInterval: 3600,
		Queue: memory.New(), ConnectUsername: a.user, ConnectPassword: []byte(a.password),
		ClientConfig: paho5.ClientConfig{ClientID: deviceID},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		<-c.Done()
	})
	require.NoError(t, c.AwaitConnection(soon(t)))
	return func(body []byte) {
		require.NoError(t, c.PublishViaQueue(ctx, &autopaho.QueuePublish{
			Publish: &paho5.Publish{QoS: 1, Topic: "devices/" + deviceID + "/up", Payload: body},
		}))
	}
}
