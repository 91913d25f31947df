package interop

import (
	"context"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/eclipse/paho.golang/autopaho"
	paho5 "github.com/eclipse/paho.golang/paho"
	"github.com/stretchr/testify/require"
)

// oneBroker is a cluster of one mosquitto that keeps its sessions, and an observer with a session
// of its own. Mosquitto writes a message to its subscribers before it acknowledges it, and the
// system delivers what a killed program wrote, unless there is data that it has not read: then the
// system resets the connection. So the observer, which subscribes with QoS 0, writes nothing, and a
// kill loses nothing that is acknowledged as long as the observer was connected.
type oneBroker struct {
	*broker
	client  *autopaho.ConnectionManager
	mu      sync.Mutex
	ups     int // connections of the observer
	reached int // of them, before the kill
}

func (b *oneBroker) leader() int { return 0 }
func (b *oneBroker) nodes() int  { return 1 }
func (b *oneBroker) revive(int)  { b.start() }
func (b *oneBroker) kill(int)    { b.reached = b.connections(); b.broker.kill() }
func (b *oneBroker) settled()    { b.connected(b.reached + 1) }
func (b *oneBroker) connections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ups
}

func (b *oneBroker) connected(n int) {
	eventually(b.t, "the observer is connected", func() bool { return b.connections() >= n })
}

// observe subscribes with MQTT 5 and a session that outlives connections, and passes on what comes.
func (b *oneBroker) observe(filter string, arrived func(payload []byte)) {
	t := b.t
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	b.client, err = autopaho.NewConnection(ctx, autopaho.ClientConfig{
		ServerUrls: []*url.URL{{Scheme: "mqtt", Host: b.plain}}, KeepAlive: 10, SessionExpiryInterval: 3600,
		ReconnectBackoff: autopaho.NewConstantBackoff(20 * time.Millisecond),
		OnConnectionUp: func(cm *autopaho.ConnectionManager, _ *paho5.Connack) {
			go func() { // ends with the connection; a subscription within this function would block
				_, err := cm.Subscribe(ctx, &paho5.Subscribe{Subscriptions: []paho5.SubscribeOptions{{Topic: filter}}})
				if err == nil {
					b.mu.Lock()
					b.ups++
					b.mu.Unlock()
				}
			}()
		},
		ClientConfig: paho5.ClientConfig{
			ClientID: "observer",
			OnPublishReceived: []func(paho5.PublishReceived) (bool, error){func(p paho5.PublishReceived) (bool, error) {
				arrived(p.Packet.Payload)
				return true, nil
			}},
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		<-b.client.Done()
	})
	b.connected(1)
}

// One mosquitto that is killed and started again: the comparison over MQTT 3.1.1 and 5. It keeps
// the sessions that existed when it saved them.
func TestMosquittoSurvivesKills(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{true, false} {
		name := "it loses the sessions of the senders"
		if kept {
			name = "it keeps the sessions of the senders"
		}
		t.Run(name, func(t *testing.T) {
			b := &oneBroker{broker: startBroker(t, settings{persistent: true})}
			s := newSiege(t, b)
			b.observe("site/#", s.arrived)
			if !kept {
				b.save()
			}
			a := account{addrs: []string{b.plain}}
			s.addMQTT(a, hublinePaho, hublineMQTT, hublineMQTT5)
			s.loads[2].anew = !kept
			s.add("paho.mqtt.golang, 3.1.1", false, newPahoSender(t, a, "site/paho/up"))
			s.add("autopaho, 5", false, newAutopahoSender(t, a, "site/autopaho/up"))
			if kept {
				b.save()
			}
			s.run()
			s.check()
		})
	}
}
