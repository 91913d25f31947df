package sim_test

import (
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/memconn"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// hop is a hop in memory that ends TCP: it takes up to buffer bytes from a device as fast as they
// come, and passes them on at a rate. Its window opens only when step bytes are free.
type hop struct {
	buffer, step, rate int

	eats atomic.Bool   // it takes what comes from devices and passes nothing on
	near *memconn.Conn // the device's end of the latest connection
}

// through returns dial with the hop between.
func (h *hop) through(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context,
	network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		hub, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		near, far := memconn.Pair("device", "hop")
		far.SetWindow(h.buffer, h.step)
		near.SetSendBuffer(64 << 10)
		h.near = near
		go pass(far, hub, 1<<20, new(atomic.Bool))
		go pass(hub, far, h.rate, &h.eats)
		return near, nil
	}
}

// pass copies bytes at a rate until either end fails, but drops them while eats is set.
func pass(to, from net.Conn, rate int, eats *atomic.Bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 512)
	for {
		n, err := from.Read(buf)
		time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
		if eats.Load() && err == nil {
			continue
		}
		if _, e := to.Write(buf[:n]); err != nil || e != nil {
			return
		}
	}
}

// Messages of 250 KB arrive once, on one connection, behind hops whose windows stay closed for far
// longer than a write may take, and behind hops that take everything at once.
func TestLargeMessagesBehindASlowHop(t *testing.T) {
	for _, row := range []struct {
		name                               string
		buffer, step, rate, messages, size int
	}{
		{"a closed window", 128 << 10, 64 << 10, 2_000, 3, 250_000},
		{"a closed window, faster", 128 << 10, 64 << 10, 5_000, 3, 250_000},
		{"a small window", 16 << 10, 1 << 10, 2_000, 3, 250_000},
		{"a large buffer", 8 << 20, 1 << 20, 2_000, 3, 250_000},
		{"some hundred bytes a second", 4 << 10, 1 << 10, 700, 2, 60_000},
		{"some hundred bytes a second, small messages", 4 << 10, 1 << 10, 700, 60, 800},
	} {
		t.Run(row.name, func(t *testing.T) {
			withEachEngine(t, func(t *testing.T, e engine) {
				if e.protocol == hubdata.HTTP && row.rate < 1_000 && row.size > 10_000 {
					t.Skip("a request has a time of its own")
				}
				size := largest(e, row.rate, row.size)
				synctest.Test(t, func(t *testing.T) {
					largeMessages(t, e, &hop{buffer: row.buffer, step: row.step, rate: row.rate}, row.messages, size)
				})
			})
		})
	}
}

func largeMessages(t *testing.T, e engine, h *hop, messages, size int) {
	hub, creds := e.openHub(t)
	w := e.inMemory(hub, false)
	w.Dial, w.KeepAlive = h.through(w.Dial), keepAlive(e)
	began := time.Now()
	c, err := device.New(creds, e.make(creds, w), &device.Options{OnStatus: func(s device.Status) {
		if s.Err != nil {
			t.Logf("after %v: %v", time.Since(began), s.Err)
		}
	}})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Open(t.Context()))
	for i := range messages {
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i), Body: make([]byte, size)}, nil))
	}
	ideal := time.Duration(messages*size) * time.Second / time.Duration(h.rate)
	ctx, cancel := context.WithTimeout(t.Context(), 3*ideal)
	defer cancel()
	err = c.Flush(ctx)
	_ = c.Close()
	hub.Close()
	time.Sleep(time.Minute) // the hop ends
	require.NoError(t, err, "%d of %d; ideal %v", c.Stats().Acknowledged, messages, ideal)
	t.Logf("%v of %v, %d copies, %d connections", time.Since(began), ideal, len(hub.Messages()), c.Stats().Connections)
	require.Len(t, hub.Messages(), messages)
	require.EqualValues(t, 1, c.Stats().Connections)
}

// A peer that is gone is found in bounded time, on a slow connection too: in about 30 s when the
// network is gone, and one second more for each KiB of a message when a hop takes everything and
// answers nothing.
func TestADeadPeerBehindASlowHopIsFound(t *testing.T) {
	gone := func(h *hop) { h.near.Hold(true) }
	eats := func(h *hop) { h.eats.Store(true) }
	for _, row := range []struct {
		name         string
		buffer, size int
		fail         func(h *hop)
		most         time.Duration
	}{
		{"the network is gone", 8 << 20, 1_000, gone, 31 * time.Second},
		{"the network is gone before a large message", 8 << 20, 60_000, gone, 31 * time.Second},
		{"the network is gone behind a closed window", 128 << 10, 250_000, gone, 31 * time.Second},
		{"the hop eats small messages", 8 << 20, 1_000, eats, 31 * time.Second},
		{"the hop eats large messages", 8 << 20, 250_000, eats, 275 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			withEachEngine(t, func(t *testing.T, e engine) {
				if e.protocol == hubdata.HTTP {
					t.Skip("a request has a time of its own")
				}
				synctest.Test(t, func(t *testing.T) {
					h := &hop{buffer: row.buffer, step: row.buffer / 2, rate: 10_000}
					took := deadPeer(t, e, h, row.fail, largest(e, h.rate, row.size))
					require.LessOrEqual(t, took, row.most)
				})
			})
		})
	}
}

// deadPeer returns how long it takes to find that h has failed while messages are sent.
func deadPeer(t *testing.T, e engine, h *hop, fail func(h *hop), size int) time.Duration {
	hub, creds := e.openHub(t)
	w := e.inMemory(hub, false)
	w.Dial = h.through(w.Dial)
	lost := make(chan error, 100)
	c, err := device.New(creds, e.make(creds, w), &device.Options{OnStatus: func(s device.Status) {
		if s.Err != nil {
			lost <- s.Err
		}
	}})
	require.NoError(t, err)
	require.NoError(t, c.Open(t.Context()))
	if size > 100_000 { // the hop fails in the middle
		enqueueFour(t, c, size)
		time.Sleep(20 * time.Second)
		fail(h)
	} else {
		fail(h)
		enqueueFour(t, c, size)
	}
	began := time.Now()
	err = <-lost
	took := time.Since(began)
	t.Logf("%v: %v", took, err)
	_ = c.Close()
	hub.Close()
	h.near.Reset()
	time.Sleep(time.Hour) // the hop ends
	return took
}

func enqueueFour(t *testing.T, c *device.Client, size int) {
	for range 4 {
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: make([]byte, size)}, nil))
	}
}
