package amqp_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// slow returns options whose connections carry rate bytes per second each way, behind a send buffer
// of buffer bytes.
func (h *hub) slow(rate, buffer int) *amqp.Options {
	o := h.options()
	dial := o.Network.Dial
	o.Network.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err == nil {
			c.(*memconn.Conn).SetRate(rate)
			c.(*memconn.Conn).SetSendBuffer(buffer)
		}
		return c, err
	}
	return o
}

// A fleet on a shared slow connection sends about as fast as the connection allows, with few
// duplicates. Linux gives such a connection a send buffer of 2 MB.
func TestAFleetOnASlowConnection(t *testing.T) {
	bubble(t, func(t *testing.T, h *hub) {
		const devices, messages, size, rate = 50, 100, 800, 20_000
		mux := amqp.NewMux(h.slow(rate, 2<<20))
		var dials, failures int
		var mu sync.Mutex
		count := &device.Trace{
			Connected: func(transport.Info, time.Duration) { mu.Lock(); dials++; mu.Unlock() },
		}
		all := make([]*device.Client, devices)
		for i := range all {
			c, err := device.New(h.device(t, fmt.Sprintf("fleet-%d", i)), mux, &device.Options{
				Trace: count,
				OnStatus: func(s device.Status) {
					if s.Reason == device.ReasonAttemptFailed {
						mu.Lock()
						failures++
						mu.Unlock()
					}
				},
			})
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Start())
			all[i] = c
		}
		body := make([]byte, size)
		began := time.Now()
		each(all, func(i int, c *device.Client) {
			for k := range messages {
				if err := c.Enqueue(t.Context(), &transport.Message{ID: fmt.Sprint(k), Body: body}, nil); err != nil {
					t.Error(err)
				}
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 480*time.Second)
		defer cancel()
		each(all, func(_ int, c *device.Client) { _ = c.Flush(ctx) })
		took := time.Since(began)
		mu.Lock()
		defer mu.Unlock()
		acked := uint64(0)
		for _, c := range all {
			acked += c.Stats().Acknowledged
		}
		copies := len(h.Messages())
		t.Logf("%d acknowledged in %v, %d copies at the hub, %d connected, %d attempts failed, %d sockets", acked, took,
			copies, dials, failures, h.dials.Load())
		ideal := time.Duration(devices*messages*size) * time.Second / rate
		require.EqualValues(t, devices*messages, acked)
		require.Less(t, took, ideal*12/10)
		require.Less(t, copies, devices*messages*11/10)
		require.LessOrEqual(t, dials, devices*11/10)
		require.Zero(t, failures)
	})
}

// Many devices join over a connection that needs longer for all of them than DialTimeout and
// OperationTimeout. No dial fails.
func TestManyJoinOverASlowConnection(t *testing.T) {
	for name, handle := range map[string]func(c *device.Client){
		"messages": func(c *device.Client) {
			c.HandleMessages(func(context.Context, *transport.Message) error { return nil })
		},
		"desired properties": func(c *device.Client) { c.HandleDesired(func(context.Context, device.Desired) {}) },
	} {
		t.Run(name, func(t *testing.T) { manyJoin(t, handle) })
	}
}

func manyJoin(t *testing.T, handle func(c *device.Client)) {
	bubble(t, func(t *testing.T, h *hub) {
		const devices, rate = 100, 500
		mux := amqp.NewMux(h.slow(rate, 2<<20))
		var mu sync.Mutex
		var last time.Time
		up, failures := 0, 0
		began := time.Now()
		for i := range devices {
			c, err := device.New(h.device(t, fmt.Sprintf("fleet-%d", i)), mux, &device.Options{
				Trace: &device.Trace{Connected: func(transport.Info, time.Duration) {
					mu.Lock()
					up, last = up+1, time.Now()
					mu.Unlock()
				}},
				OnStatus: func(s device.Status) {
					if s.Reason == device.ReasonAttemptFailed {
						mu.Lock()
						failures++
						mu.Unlock()
						t.Log(s.Err)
					}
				},
			})
			require.NoError(t, err)
			handle(c)
			defer c.Close()
			require.NoError(t, c.Start())
		}
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		t.Logf("%d up after %v, %d attempts failed", up, last.Sub(began), failures)
		require.Equal(t, devices, up)
		require.Greater(t, last.Sub(began), time.Minute, "it was not slow")
		require.Zero(t, failures)
		require.EqualValues(t, 1, h.dials.Load())
	})
}
