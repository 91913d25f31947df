package interop

import (
	"context"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	"github.com/eclipse/paho.golang/autopaho/queue/memory"
	"github.com/eclipse/paho.golang/packets"
	paho5 "github.com/eclipse/paho.golang/paho"
	pahomqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/stretchr/testify/require"
)

// account is how a client logs in to a broker, and where.
type account struct {
	addrs          []string
	user, password string
}

// clientID makes a client id of the name of a sender: NATS refuses dots and spaces.
func clientID(name string) string {
	return strings.NewReplacer(".", "-", " ", "-", ",", "").Replace(name)
}

// patience is how long a compared client may take for one message.
const patience = 30 * time.Second

// pahoSender is paho.mqtt.golang with its own reconnect and a store in files, as its documentation
// recommends for messages that must survive a lost connection: a session that the broker keeps,
// order, and a store.
type pahoSender struct {
	client pahomqtt.Client
	topic  string
}

func newPahoSender(t testing.TB, a account, topic string) func(l *ledger) sender {
	return func(l *ledger) sender {
		o := pahomqtt.NewClientOptions().SetClientID(clientID(l.name)).SetUsername(a.user).SetPassword(a.password).
			SetCleanSession(false).SetStore(pahomqtt.NewFileStore(t.TempDir())).SetOrderMatters(true).
			SetAutoReconnect(true).SetConnectRetry(true).SetConnectRetryInterval(siegeBackoff).
			SetMaxReconnectInterval(siegeBackoff).SetKeepAlive(10 * time.Second).SetPingTimeout(5 * time.Second).
			SetWriteTimeout(10 * time.Second).SetConnectTimeout(5 * time.Second).SetProtocolVersion(4)
		for _, addr := range a.addrs {
			o.AddBroker("tcp://" + addr)
		}
		o.SetCustomOpenConnectionFn(func(u *url.URL, o pahomqtt.ClientOptions) (net.Conn, error) {
			c, err := net.DialTimeout("tcp", u.Host, o.ConnectTimeout)
			if err != nil {
				return nil, err
			}
			return tapMQTT(c, l), nil
		})
		s := &pahoSender{pahomqtt.NewClient(o), topic}
		connected := s.client.Connect()
		require.True(t, connected.WaitTimeout(waitLimit))
		require.NoError(t, connected.Error())
		t.Cleanup(s.close)
		return s
	}
}

func (s *pahoSender) send(_ int, body []byte) func() error {
	token := s.client.Publish(s.topic, 1, false, body)
	return func() error {
		if !token.WaitTimeout(patience) {
			return errUnanswered
		}
		return token.Error()
	}
}

func (s *pahoSender) close() { s.client.Disconnect(100) }

// autopahoSender is autopaho, for MQTT 5, with its queue. The queue in memory keeps the order; the
// one in files sorts by the time of the files. It has no results: a message counts as ended when
// the broker's PUBACK crosses the wire.
type autopahoSender struct {
	*ledger
	client *autopaho.ConnectionManager
	ctx    context.Context
	cancel context.CancelFunc
	topic  string
}

func newAutopahoSender(t testing.TB, a account, topic string) func(l *ledger) sender {
	return func(l *ledger) sender {
		s := &autopahoSender{ledger: l, topic: topic}
		s.ctx, s.cancel = context.WithCancel(context.Background())
		config := autopaho.ClientConfig{
			KeepAlive: 10, SessionExpiryInterval: 3600, Queue: memory.New(), ConnectTimeout: 5 * time.Second,
			ReconnectBackoff: autopaho.NewConstantBackoff(siegeBackoff),
			ConnectUsername:  a.user, ConnectPassword: []byte(a.password),
			AttemptConnection: func(ctx context.Context, _ autopaho.ClientConfig, u *url.URL) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, "tcp", u.Host)
				if err != nil {
					return nil, err
				}
				return packets.NewThreadSafeConn(tapMQTT(c, l)), nil
			},
			ClientConfig: paho5.ClientConfig{ClientID: clientID(l.name)},
		}
		for _, addr := range a.addrs {
			config.ServerUrls = append(config.ServerUrls, &url.URL{Scheme: "mqtt", Host: addr})
		}
		var err error
		s.client, err = autopaho.NewConnection(s.ctx, config)
		require.NoError(t, err)
		require.NoError(t, s.client.AwaitConnection(soon(t)))
		t.Cleanup(s.close)
		return s
	}
}

func (s *autopahoSender) send(n int, body []byte) func() error {
	err := s.client.PublishViaQueue(s.ctx, &autopaho.QueuePublish{
		Publish: &paho5.Publish{QoS: 1, Topic: s.topic, Payload: body},
	})
	return func() error {
		if err != nil {
			return err
		}
		for {
			select {
			case <-s.messages[n].acked:
				return nil
			case <-time.After(100 * time.Millisecond):
				if s.overtaken(n) {
					return errUnanswered
				}
			}
		}
	}
}

func (s *autopahoSender) close() {
	s.cancel()
	<-s.client.Done()
}
