package interop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	goamqp "github.com/Azure/go-amqp"
	pahomqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// receiver is a device that receives commands, again and again as new clients with the same
// identity.
type receiver struct {
	name    string
	creds   *transport.Credentials
	over    func() transport.Transport
	publish func(ctx context.Context, body string) error // by another client; nil once the broker has it
	client  *device.Client

	mu  sync.Mutex
	got []string
}

// start opens a new client.
func (r *receiver) start(t testing.TB) {
	t.Helper()
	var err error
	r.client, err = device.New(r.creds, r.over(), &device.Options{RetryPolicy: siegePolicy{}, PacedPolicy: siegePolicy{}})
	require.NoError(t, err)
	r.client.HandleMessages(func(_ context.Context, m *transport.Message) error {
		r.mu.Lock()
		r.got = append(r.got, string(m.Body))
		r.mu.Unlock()
		return nil
	})
	require.NoError(t, r.client.Open(soon(t)))
	t.Cleanup(func() { _ = r.client.Close() })
}

// firsts returns the first copies of what came with this prefix.
func (r *receiver) firsts(prefix string) (firsts []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := make(map[string]bool)
	for _, body := range r.got {
		if len(body) > len(prefix) && body[:len(prefix)] == prefix && !seen[body] {
			seen[body] = true
			firsts = append(firsts, body)
		}
	}
	return firsts
}

// send publishes a command until the broker has acknowledged it.
func (r *receiver) send(t testing.TB, body string) {
	t.Helper()
	eventually(t, "the broker takes "+body, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return r.publish(ctx, body) == nil
	})
}

// commandsArrive checks that commands reach devices if a node, the leader first, is dead when they
// are published: devices that are away, and devices that are connected.
func commandsArrive(t testing.TB, c cluster, receivers ...*receiver) {
	const commands = 50
	sendAll := func(prefix string) {
		for _, r := range receivers {
			for i := range commands {
				r.send(t, fmt.Sprintf("%s %02d", prefix, i))
			}
		}
	}
	arrive := func(prefix string) {
		for _, r := range receivers {
			eventually(t, r.name+": "+prefix, func() bool { return len(r.firsts(prefix)) == commands })
			for i, body := range r.firsts(prefix) {
				require.Equal(t, fmt.Sprintf("%s %02d", prefix, i), body, "%s: order", r.name)
			}
		}
	}
	for _, r := range receivers {
		r.start(t)
	}
	sendAll("before") // the subscriptions exist
	arrive("before")

	for _, r := range receivers {
		require.NoError(t, r.client.Close())
	}
	victim := c.leader()
	c.kill(victim)
	sendAll("away")
	for _, r := range receivers {
		r.start(t)
	}
	arrive("away")
	c.revive(victim)
	c.settled()

	victim = c.leader()
	c.kill(victim)
	sendAll("connected")
	arrive("connected")
	c.revive(victim)
	c.settled()
	for _, r := range receivers {
		r.mu.Lock()
		copies := len(r.got)
		r.mu.Unlock()
		seen(t, "%s: %d commands, a node killed twice, the device away once: lost 0, in order, %d came twice", r.name,
			3*commands, copies-3*commands)
	}
}

// commander publishes one message at a time with paho.mqtt.golang, without its reconnect: that one
// reports messages as done which the broker has not acknowledged.
type commander struct {
	account
	at     int
	client pahomqtt.Client
}

func (c *commander) publish(ctx context.Context, topic, body string) error {
	if c.client == nil || !c.client.IsConnectionOpen() {
		c.at++
		o := pahomqtt.NewClientOptions().AddBroker("tcp://" + c.addrs[c.at%len(c.addrs)]).SetClientID("commander").
			SetUsername(c.user).SetPassword(c.password).SetAutoReconnect(false).SetConnectTimeout(5 * time.Second)
		c.client = pahomqtt.NewClient(o)
		if err := done(ctx, c.client.Connect()); err != nil {
			c.stop()
			return err
		}
	}
	err := done(ctx, c.client.Publish(topic, 1, false, body))
	if err != nil {
		c.stop()
	}
	return err
}

func (c *commander) stop() {
	if c.client != nil {
		c.client.Disconnect(0)
		c.client = nil
	}
}

func done(ctx context.Context, token pahomqtt.Token) error {
	select {
	case <-token.Done():
		return token.Error()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// receiversMQTT are devices over each of the clients, with persistent sessions.
func receiversMQTT(t testing.TB, a account, clients ...mqttClient) (receivers []*receiver) {
	from := &commander{account: a}
	t.Cleanup(from.stop)
	for i, m := range clients {
		id := fmt.Sprintf("receiver-%d", i)
		creds := brokerCreds(id, a.user, a.password)
		receivers = append(receivers, &receiver{
			name: m.name, creds: creds,
			over: func() transport.Transport {
				return m.make(netopt.Options{Plaintext: true, Dial: netopt.Failover(nil, a.addrs...)},
					&dialect.Topics{Telemetry: "sent/{device}", Commands: []string{"command/{device}/#"}}, nil)
			},
			publish: func(ctx context.Context, body string) error {
				return from.publish(ctx, "command/"+id+"/do", body)
			},
		})
	}
	return receivers
}

// receiverAMQP is a device that receives from a queue of the cluster.
func receiverAMQP(c *rabbitCluster) *receiver {
	creds := brokerCreds("receiver", rabbitUser, rabbitPassword)
	at := 0
	return &receiver{
		name: "Hubline, AMQP 1.0", creds: creds,
		over: func() transport.Transport { return c.transport() },
		publish: func(ctx context.Context, body string) error {
			at++
			return sendOnce(ctx, c.node[at%len(c.node)].amqp, queueCloudToDevice, body)
		},
	}
}

// sendOnce sends one message over a connection of its own.
func sendOnce(ctx context.Context, addr, queue, body string) error {
	conn, err := goamqp.Dial(ctx, "amqp://"+addr, &goamqp.ConnOptions{
		SASLType: goamqp.SASLTypePlain(rabbitUser, rabbitPassword), HostName: hostName,
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		return err
	}
	s, err := session.NewSender(ctx, "/amq/queue/"+queue, nil)
	if err != nil {
		return err
	}
	m := goamqp.NewMessage([]byte(body))
	m.Header = &goamqp.MessageHeader{Durable: true}
	r, err := s.SendWithReceipt(ctx, m, nil)
	if err != nil {
		return err
	}
	state, err := r.Wait(ctx)
	if _, accepted := state.(*goamqp.StateAccepted); err == nil && !accepted {
		return errors.New("not accepted")
	}
	return err
}
