package sim_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/websocket"
	"github.com/stretchr/testify/require"
)

// Thousands of messages of 4 KB in each direction, concurrently, over real TCP with full socket
// buffers, while the handler of cloud-to-device messages sends telemetry itself: there is no
// deadlock, and all arrive in order.
func TestTwoWayTrafficAtFullSpeed(t *testing.T) {
	withEachEngine(t, func(t *testing.T, e engine) { twoWay(t, e, ports[e.protocol].plain) })
	t.Run("mqtt over WebSocket and TLS", func(t *testing.T) {
		twoWay(t, engine{make: func(_ *transport.Credentials, w *way) transport.Transport {
			o := w.mqtt()
			o.Network.Tunnel = websocket.MQTT(nil)
			return mqtt.New(o)
		}}, testbroker.PortHTTPS)
	})
}

func twoWay(t *testing.T, with engine, port testbroker.Port) {
	with.needsMessages(t)
	n := 1_000 // in each direction 4 MB, as much as the buffers of sockets
	if *all {
		n *= 4
	}
	hub, creds := with.openHub(t)
	addr, err := hub.Listen(port, "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()

	var handled, answered atomic.Int64
	var c *device.Client
	c, err = device.New(creds, with.make(creds, &way{Plaintext: port != testbroker.PortHTTPS, TLS: hub.ClientTLS(),
		Addr: addr.String(), Poll: 10 * time.Millisecond}), nil)
	require.NoError(t, err)
	body := func(n int) string { return fmt.Sprintf("%4096d", n) }
	c.HandleMessages(func(ctx context.Context, m *transport.Message) error {
		n := int(handled.Add(1))
		if string(m.Body) != body(n) {
			t.Errorf("cloud-to-device message %d is %s", n, m.Body)
		}
		if n%100 == 0 { // a handler that waits for an acknowledgement
			if err := c.Send(ctx, &transport.Message{ID: "answer to " + m.ID}); err != nil {
				return err
			}
			answered.Add(1)
		}
		return nil
	})
	require.NoError(t, c.Open(ctx))

	fromCloud := make(chan error, 1)
	go func() { // the cloud; ends with its last cloud-to-device message
		fromCloud <- func() error {
			for sent := 0; sent < n; {
				err := with.sendC2D(hub, "dev-1", hubdata.C2D{Body: []byte(body(sent + 1))})
				switch {
				case err == nil:
					sent++
				case errors.Is(err, testbroker.ErrQueueFull):
					if err := hub.WaitC2D(ctx, "dev-1", hubdata.C2DCompleted, sent-25); err != nil { // half the queue is free
						return err
					}
				default:
					return err
				}
			}
			return nil
		}()
	}()
	for i := range n {
		require.NoError(t, c.Enqueue(ctx, &transport.Message{Body: []byte(body(i))}, nil))
	}
	require.NoError(t, c.Flush(ctx))
	require.NoError(t, <-fromCloud)
	require.NoError(t, hub.WaitC2D(ctx, "dev-1", hubdata.C2DCompleted, n))
	require.NoError(t, c.Flush(ctx))
	require.EqualValues(t, n, handled.Load())
	require.EqualValues(t, n/100, answered.Load())
	require.Equal(t, n+n/100, hub.Len())
	telemetry := slices.DeleteFunc(with.messages(hub), func(m hubdata.Message) bool { return len(m.Body) == 0 })
	require.Len(t, telemetry, n)
	for i, m := range telemetry {
		require.Equal(t, body(i), string(m.Body))
	}
	require.EqualValues(t, 1, c.Stats().Connections)
	require.NoError(t, c.Close())
}
