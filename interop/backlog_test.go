package interop

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

// mosquitto sends more messages than the receive maximum, and than its own limit, once the first
// one is acknowledged. A slow handler gets them all.
func TestABacklogAtMosquittoArrivesInOrder(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []int{0, 20} {
		b := startBroker(t, settings{inFlight: inFlight})
		at := &mqttBroker{device: b.plain, others: account{addrs: []string{b.plain}}}
		for _, m := range []mqttClient{hublinePaho, hublineMQTT, hublineMQTT5} {
			t.Run(fmt.Sprintf("%s, %d in flight", m.name, inFlight), func(t *testing.T) {
				t.Run("queued", func(t *testing.T) { backlogArrives(t, at, m, false) })
				t.Run("retained", func(t *testing.T) { backlogArrives(t, at, m, true) })
			})
		}
	}
}

// backlogArrives checks that commands to a device that is away arrive in order. Retained ones have
// a topic each, and their device subscribes for the first time; a broker may mix their order.
func backlogArrives(t *testing.T, b *mqttBroker, m mqttClient, retained bool) {
	commands := 1000
	creds, over := b.oneDevice(t, m, b.device, dialect.Topics{}, nil)
	if retained {
		commands = 300
	} else {
		c := b.open(t, creds, over, make(chan *transport.Message, 1))
		require.NoError(t, c.Close())
	}
	other := b.others.other(t, "")
	for i := range commands {
		token := other.client.Publish(fmt.Sprintf("down/%s/%d", creds.DeviceID, i), 1, retained, strconv.Itoa(i))
		require.NoError(t, done(soon(t), token))
	}

	var (
		mu     sync.Mutex
		seen   = make(map[string]bool)
		firsts []string
	)
	c, err := device.New(creds, over, &device.Options{RetryPolicy: fastPolicy{}, PacedPolicy: fastPolicy{}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	c.HandleMessages(func(_ context.Context, m *transport.Message) error {
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		if body := string(m.Body); !seen[body] {
			seen[body] = true
			firsts = append(firsts, body)
		}
		return nil
	})
	require.NoError(t, c.Open(soon(t)))
	eventually(t, fmt.Sprint(commands, " commands"), func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(firsts) == commands
	})
	mu.Lock()
	defer mu.Unlock()
	for i := 0; i < commands && !retained; i++ {
		require.Equal(t, strconv.Itoa(i), firsts[i])
	}
}
