package interop

import (
	"crypto/tls"
	"sync"
	"testing"

	"github.com/eclipse/paho.golang/packets"
	"github.com/eclipse/paho.golang/paho"
	"github.com/stretchr/testify/require"
)

// watcher is an MQTT 5 client of another make, with its own connection to the broker that no test
// cuts.
type watcher struct {
	t      testing.TB
	client *paho.Client

	mu  sync.Mutex
	got []arrival
}

// arrival is a message that the broker sent to the watcher.
type arrival struct {
	topic, body string
	qos         byte
	retained    bool
}

// watch connects and subscribes to filter; with an empty one it only connects.
func watch(t testing.TB, b *broker, id, filter string) *watcher {
	t.Helper()
	conn, err := tls.Dial("tcp", b.secure, &tls.Config{RootCAs: b.ca.pool(), ServerName: hostName})
	require.NoError(t, err)
	w := &watcher{t: t}
	w.client = paho.NewClient(paho.ClientConfig{
		Conn:              packets.NewThreadSafeConn(conn),
		OnPublishReceived: []func(paho.PublishReceived) (bool, error){w.take},
	})
	_, err = w.client.Connect(soon(t), &paho.Connect{ClientID: id, CleanStart: true, KeepAlive: 60})
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.client.Disconnect(&paho.Disconnect{}) })
	if filter != "" {
		_, err = w.client.Subscribe(soon(t), &paho.Subscribe{Subscriptions: []paho.SubscribeOptions{{Topic: filter, QoS: 1}}})
		require.NoError(t, err)
	}
	return w
}

func (w *watcher) take(p paho.PublishReceived) (bool, error) {
	w.mu.Lock()
	w.got = append(w.got, arrival{p.Packet.Topic, string(p.Packet.Payload), p.Packet.QoS, p.Packet.Retain})
	w.mu.Unlock()
	return true, nil
}

// arrivals returns the arrivals so far.
func (w *watcher) arrivals() []arrival {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]arrival(nil), w.got...)
}

func (w *watcher) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.got)
}

// publish sends with QoS 1 and waits until the broker has it.
func (w *watcher) publish(topic, body string) {
	w.t.Helper()
	_, err := w.client.Publish(soon(w.t), &paho.Publish{QoS: 1, Topic: topic, Payload: []byte(body)})
	require.NoError(w.t, err)
}
