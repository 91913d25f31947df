package interop

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/packets"
	paho5 "github.com/eclipse/paho.golang/paho"
	pahomqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// mqttBroker is a running broker of another make, for devices of any client of Hubline.
type mqttBroker struct {
	device         string      // address for devices
	trust          *tls.Config // nil: without TLS
	user, password string
	others         account // for a client of another make
	five           bool    // it speaks MQTT 5
	restart        func()  // ends the process and starts it again
}

// each runs check with each client against a broker from start.
func each(t *testing.T, start func(t testing.TB) *mqttBroker, check func(t *testing.T, b *mqttBroker, m mqttClient)) {
	b := start(t)
	clients := []mqttClient{hublinePaho, hublineMQTT}
	if b.five {
		clients = append(clients, hublineMQTT5)
	}
	for _, m := range clients {
		t.Run(m.name, func(t *testing.T) { check(t, b, m) })
	}
}

const brokerUser, brokerPassword = "user-1", "correct horse"

func TestMosquittoAsABroker(t *testing.T) {
	each(t, func(t testing.TB) *mqttBroker {
		b := startBroker(t, settings{passwords: map[string]string{brokerUser: brokerPassword}, persistent: true})
		return &mqttBroker{b.secure, b.trust(), brokerUser, brokerPassword, account{addrs: []string{b.plain}}, true, func() {
			b.stop() // saves the sessions
			b.start()
		}}
	}, asABroker)
}

func TestRabbitMQAsABroker(t *testing.T) {
	t.Parallel()
	each(t, func(t testing.TB) *mqttBroker {
		c := startRabbits(t, 1)
		addr := c.node[0].mqtt
		return &mqttBroker{addr, nil, rabbitUser, rabbitPassword, account{[]string{addr}, rabbitUser, rabbitPassword}, false,
			func() {
				c.kill(0)
				c.start(0)
				c.settled()
			}}
	}, asABroker)
}

func TestNATSAsABroker(t *testing.T) {
	each(t, func(t testing.TB) *mqttBroker {
		c := startNATS(t, 1)
		addr := c.node[0].mqtt
		return &mqttBroker{addr, nil, natsUser, natsPassword, account{[]string{addr}, natsUser, natsPassword}, false,
			func() {
				c.kill(0)
				c.start(0)
				c.healthy(0)
			}}
	}, asABroker)
}

// oneDevice returns credentials and a transport. The ids of devices differ, so that a broker's
// sessions of earlier cases are no matter.
func (b *mqttBroker) oneDevice(t testing.TB, m mqttClient, addr string, topics dialect.Topics, will *transport.Message,
) (*transport.Credentials, transport.Transport) {
	network := netopt.Options{Addr: addr, TLS: b.trust, Plaintext: b.trust == nil}
	creds := brokerCreds(fmt.Sprintf("d%x", time.Now().UnixNano()), b.user, b.password)
	topics.Telemetry, topics.Commands = "up/{device}", []string{"down/{device}/#"}
	return creds, m.make(network, &topics, will)
}

func (b *mqttBroker) open(t testing.TB, creds *transport.Credentials, over transport.Transport,
	got chan<- *transport.Message) *device.Client {
	c, err := device.New(creds, over, &device.Options{RetryPolicy: fastPolicy{}, PacedPolicy: fastPolicy{}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	if got != nil {
		c.HandleMessages(func(_ context.Context, m *transport.Message) error {
			got <- &transport.Message{Topic: strings.Clone(m.Topic), Body: append([]byte(nil), m.Body...),
				Properties: append([]transport.Property(nil), m.Properties...), CorrelationID: m.CorrelationID,
				ContentType: m.ContentType, ResponseTopic: m.ResponseTopic}
			return nil
		})
	}
	require.NoError(t, c.Open(soon(t)))
	return c
}

// other is a client of another make, over MQTT 3.1.1.
type other struct {
	t      testing.TB
	client pahomqtt.Client
	mu     sync.Mutex
	got    []arrival
}

func (a account) other(t testing.TB, filter string) *other {
	o := &other{t: t}
	options := pahomqtt.NewClientOptions().AddBroker("tcp://" + a.addrs[0]).SetUsername(a.user).SetPassword(a.password).
		SetClientID(fmt.Sprintf("o%x", time.Now().UnixNano())).SetProtocolVersion(4)
	o.client = pahomqtt.NewClient(options)
	require.NoError(t, done(soon(t), o.client.Connect()))
	t.Cleanup(func() { o.client.Disconnect(100) })
	if filter != "" {
		require.NoError(t, done(soon(t), o.client.Subscribe(filter, 1, func(_ pahomqtt.Client, m pahomqtt.Message) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.got = append(o.got, arrival{m.Topic(), string(m.Payload()), m.Qos(), m.Retained()})
		})))
	}
	return o
}

func (o *other) publish(topic, body string) {
	o.t.Helper()
	require.NoError(o.t, done(soon(o.t), o.client.Publish(topic, 1, false, body)))
}

// wait waits for that many arrivals and returns all.
func (o *other) wait(n int) []arrival {
	o.t.Helper()
	var got []arrival
	eventually(o.t, fmt.Sprint(n, " arrivals"), func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		got = append([]arrival(nil), o.got...)
		return len(got) >= n
	})
	return got
}

func next(t testing.TB, got <-chan *transport.Message) *transport.Message {
	t.Helper()
	select {
	case m := <-got:
		return m
	case <-time.After(waitLimit):
		t.Fatal("no message")
		return nil
	}
}

// asABroker checks what devices need of any broker.
func asABroker(t *testing.T, b *mqttBroker, m mqttClient) {
	t.Run("telemetry arrives in order", func(t *testing.T) {
		creds, over := b.oneDevice(t, m, b.device, dialect.Topics{}, nil)
		watcher := b.others.other(t, "up/"+creds.DeviceID+"/#")
		c := b.open(t, creds, over, nil)
		const n = 200
		var receipts [n]device.Receipt
		for i := range n {
			m := &transport.Message{Body: fmt.Appendf(nil, "%d", i)}
			if i%2 == 1 {
				m.Topic = "up/" + creds.DeviceID + "/odd"
			}
			require.NoError(t, c.Enqueue(soon(t), m, &receipts[i]))
		}
		for i := range receipts {
			require.NoError(t, receipts[i].Wait(soon(t)))
		}
		require.NoError(t, c.Send(soon(t), &transport.Message{Body: []byte("at most once"), AtMostOnce: true}))
		got := watcher.wait(n + 1)
		// NATS keeps the order within a topic, but not between topics that a filter with # covers.
		order := map[string]int{"": 0, "/odd": 1}
		for _, a := range got {
			if a.qos == 0 {
				require.Equal(t, arrival{topic: "up/" + creds.DeviceID, body: "at most once"}, a)
				continue
			}
			behind := strings.TrimPrefix(a.topic, "up/"+creds.DeviceID)
			require.Equal(t, arrival{topic: "up/" + creds.DeviceID + behind, body: fmt.Sprint(order[behind]), qos: 1}, a)
			order[behind] += 2
		}
		require.Equal(t, map[string]int{"": n, "/odd": n + 1}, order)
	})
	t.Run("retained messages", func(t *testing.T) {
		creds, over := b.oneDevice(t, m, b.device, dialect.Topics{Birth: &transport.Message{
			Topic: "up/{device}/state", Body: []byte("online"), Retain: true,
		}}, nil)
		b.open(t, creds, over, nil)
		got := b.others.other(t, "up/"+creds.DeviceID+"/state").wait(1)
		require.Equal(t, "online", got[0].body)
		require.True(t, got[0].retained)
	})
	t.Run("the will", func(t *testing.T) {
		r := newRelay(t, b.device)
		creds, over := b.oneDevice(t, m, r.addr(), dialect.Topics{}, &transport.Message{
			Topic: "up/{device}/state", Body: []byte("gone"),
		})
		watcher := b.others.other(t, "up/"+creds.DeviceID+"/state")
		b.open(t, creds, over, nil)
		r.cut()
		require.Equal(t, "gone", watcher.wait(1)[0].body)
	})
	t.Run("commands", func(t *testing.T) {
		creds, over := b.oneDevice(t, m, b.device, dialect.Topics{}, nil)
		got := make(chan *transport.Message, 1000)
		c := b.open(t, creds, over, got)
		commander := b.others.other(t, "")
		for i := range 20 {
			commander.publish("down/"+creds.DeviceID+"/a/b", fmt.Sprint(i))
		}
		for i := range 20 {
			m := next(t, got)
			require.Equal(t, fmt.Sprint(i), string(m.Body))
			require.Equal(t, "down/"+creds.DeviceID+"/a/b", m.Topic)
		}
		require.NoError(t, c.Close())
		commander.publish("down/"+creds.DeviceID, "while away")
		b.restart()
		b.others.other(t, "").publish("down/"+creds.DeviceID, "after the restart")
		b.open(t, creds, over, got)
		again := func() *transport.Message { // a broker that was killed may have forgotten the last acknowledgements
			for {
				if m := next(t, got); m.Body[0] > '9' {
					return m
				}
			}
		}
		require.Equal(t, "while away", string(again().Body))
		require.Equal(t, "after the restart", string(again().Body))
	})
	t.Run("a wrong password", func(t *testing.T) {
		creds, over := b.oneDevice(t, m, b.device, dialect.Topics{}, nil)
		creds.Token = transport.FixedToken("battery staple")
		c, err := device.New(creds, over, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		require.NoError(t, err)
		defer c.Close()
		err = c.Open(soon(t))
		require.ErrorIs(t, err, transport.Unauthorized)
		require.NotContains(t, err.Error(), "battery")
		seen(t, "%v", err)
	})
	if !b.five {
		t.Run("MQTT 5 is refused", func(t *testing.T) {
			creds, over := b.oneDevice(t, hublineMQTT5, b.device, dialect.Topics{}, nil)
			c, err := device.New(creds, over, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
			require.NoError(t, err)
			defer c.Close()
			err = c.Open(soon(t))
			require.Error(t, err)
			seen(t, "%v: %v", transport.KindOf(err), err)
		})
	}
	if m.name == hublineMQTT5.name {
		t.Run("properties of MQTT 5", func(t *testing.T) { properties(t, b, m) })
	}
}

// properties checks the fields of messages that only MQTT 5 has a place for, in both directions.
func properties(t *testing.T, b *mqttBroker, m mqttClient) {
	creds, over := b.oneDevice(t, m, b.device, dialect.Topics{}, nil)
	got := make(chan *transport.Message, 1)
	c := b.open(t, creds, over, got)
	arrived := make(chan *paho5.Publish, 10)
	peer := dialFive(t, b.others, func(p *paho5.Publish) { arrived <- p })
	_, err := peer.Subscribe(soon(t), &paho5.Subscribe{
		Subscriptions: []paho5.SubscribeOptions{{Topic: "up/" + creds.DeviceID, QoS: 1}},
	})
	require.NoError(t, err)
	require.NoError(t, c.Send(soon(t), &transport.Message{
		Body: []byte("x"), ContentType: "application/json", CorrelationID: "c1", ResponseTopic: "up/answers",
		Properties: []transport.Property{{Name: "größe", Value: "1 & 2"}, {Name: "gewicht", Value: "again"}},
	}))
	p := <-arrived
	require.Equal(t, "application/json", p.Properties.ContentType)
	require.Equal(t, "c1", string(p.Properties.CorrelationData))
	require.Equal(t, "up/answers", p.Properties.ResponseTopic)
	require.Contains(t, []paho5.UserProperty(p.Properties.User), paho5.UserProperty{Key: "größe", Value: "1 & 2"})
	require.Contains(t, []paho5.UserProperty(p.Properties.User), paho5.UserProperty{Key: "gewicht", Value: "again"})

	_, err = peer.Publish(soon(t), &paho5.Publish{QoS: 1, Topic: "down/" + creds.DeviceID, Payload: []byte("y"),
		Properties: &paho5.PublishProperties{ContentType: "text/plain", CorrelationData: []byte("c2"),
			ResponseTopic: "up/answers", User: paho5.UserProperties{{Key: "a", Value: "b"}}}})
	require.NoError(t, err)
	require.Equal(t, &transport.Message{
		Topic: "down/" + creds.DeviceID, Body: []byte("y"), ContentType: "text/plain", CorrelationID: "c2",
		ResponseTopic: "up/answers", Properties: []transport.Property{{Name: "a", Value: "b"}},
	}, next(t, got))
}

// dialFive connects a client of another make over MQTT 5.
func dialFive(t testing.TB, a account, got func(*paho5.Publish)) *paho5.Client {
	conn, err := new(net.Dialer).DialContext(soon(t), "tcp", a.addrs[0])
	require.NoError(t, err)
	c := paho5.NewClient(paho5.ClientConfig{
		Conn: packets.NewThreadSafeConn(conn),
		OnPublishReceived: []func(paho5.PublishReceived) (bool, error){func(p paho5.PublishReceived) (bool, error) {
			got(p.Packet)
			return true, nil
		}},
	})
	_, err = c.Connect(soon(t), &paho5.Connect{ClientID: "five", CleanStart: true, KeepAlive: 60,
		UsernameFlag: a.user != "", Username: a.user, PasswordFlag: a.user != "", Password: []byte(a.password)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Disconnect(&paho5.Disconnect{}) })
	return c
}
