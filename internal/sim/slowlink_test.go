package sim_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// relay is a hop that terminates TCP: a proxy, a gateway, a tunnel. It reads from devices at a
// limited rate, so its receive buffer and the device's send buffer fill.
type relay struct {
	net.Listener
	to   string
	rate int // bytes per second towards the hub

	wg    sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
}

func newRelay(t *testing.T, to string, rate int) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{Listener: l, to: to, rate: rate}
	r.wg.Go(r.serve)
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		r.wg.Wait()
	})
	return r
}

func (r *relay) serve() {
	for {
		near, err := r.Accept()
		if err != nil {
			return
		}
		_ = near.(*net.TCPConn).SetReadBuffer(1 << 20)
		far, err := net.Dial("tcp", r.to)
		if err != nil {
			_ = near.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, near, far)
		r.mu.Unlock()
		r.wg.Go(func() {
			defer near.Close()
			_, _ = io.Copy(near, far)
		})
		r.wg.Go(func() {
			defer far.Close()
			r.pace(far, near)
		})
	}
}

// pace copies bytes at the rate.
func (r *relay) pace(to, from net.Conn) {
	buf := make([]byte, max(r.rate/50, 64))
	due := time.Now()
	for {
		n, err := from.Read(buf)
		if _, e := to.Write(buf[:n]); err != nil || e != nil {
			return
		}
		due = due.Add(time.Duration(n) * time.Second / time.Duration(r.rate))
		time.Sleep(time.Until(due))
		if late := time.Now().Add(-time.Second); due.Before(late) {
			due = late // there were no bytes to copy
		}
	}
}

// slowRun is the result of a device behind a relay.
type slowRun struct {
	acknowledged, copies, connections uint64
}

// overRelay opens a device behind a relay, with these options.
func overRelay(t *testing.T, e engine, secure bool, rate int, w *way) (*device.Client, *testbroker.Hub) {
	h, creds := e.openHub(t)
	port := ports[e.protocol].plain
	if secure {
		port = ports[e.protocol].secure
		w.TLS = h.ClientTLS()
	}
	addr, err := h.Listen(port, "127.0.0.1:0")
	require.NoError(t, err)
	w.Plaintext, w.Addr = !secure, newRelay(t, addr.String(), rate).Addr().String()
	began := time.Now()
	c, err := device.New(creds, e.make(creds, w), &device.Options{OnStatus: func(s device.Status) {
		if s.Reason == device.ReasonConnectionLost {
			t.Logf("lost after %v: %v", time.Since(began).Round(time.Millisecond), s.Err)
		}
	}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.Open(t.Context()))
	return c, h
}

// busyOverRelay sends messages of a size for the duration d, as fast as the link accepts them.
func busyOverRelay(t *testing.T, e engine, secure bool, rate, size int, d time.Duration) slowRun {
	c, h := overRelay(t, e, secure, rate, &way{WriteTimeout: time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	body := make([]byte, size)
	for i := 0; ctx.Err() == nil; i++ {
		_ = c.Enqueue(ctx, &transport.Message{ID: strconv.Itoa(i), Body: body}, nil)
	}
	s := c.Stats()
	return slowRun{s.Acknowledged, uint64(len(h.Messages())), s.Connections}
}

// A link that makes progress is kept, even if a write takes long: the device's send buffer may be
// megabytes, and Linux reports it writable only when a third of it is free.
func TestALinkBehindASlowHopIsKept(t *testing.T) {
	if !*all {
		t.Skip("SKIPPED: takes four seconds of real time; -all runs it")
	}
	const rate, size = 400_000, 60_000
	busy := func(t *testing.T, e engine, secure bool) {
		var got slowRun
		for range 3 { // a busy machine may stall the process for longer than a write may take
			got = busyOverRelay(t, e, secure, rate, size, 4*time.Second)
			if got.connections == 1 && got.acknowledged > 10 {
				return
			}
		}
		require.EqualValues(t, 1, got.connections)
		require.Greater(t, got.acknowledged, uint64(10), "of about %d possible", 4*rate/size)
	}
	var all sync.WaitGroup // t.Parallel would run one for each processor, and all but wait
	for _, e := range behindAHop() {
		for _, secure := range []bool{false, true} {
			all.Go(func() {
				t.Run(fmt.Sprintf("%s, TLS %v", e.name, secure), func(t *testing.T) { busy(t, e, secure) })
			})
		}
	}
	all.Wait()
}

// behindAHop returns one engine of each kind that writes without waiting for answers.
func behindAHop() (all []engine) {
	for _, e := range engines {
		switch e.name {
		case "paho", "mqtt", "amqp":
			all = append(all, e)
		}
	}
	return all
}

// TestLargeMessagesBehindASlowTCPHop is TestLargeMessagesBehindASlowHop with the kernel's TCP, at
// the speed of such links: it takes some minutes. On loopback a window that was closed opens when
// 64 KB are free.
func TestLargeMessagesBehindASlowTCPHop(t *testing.T) {
	if os.Getenv("HUBLINE_SLOWLINK") == "" {
		t.Skip("SKIPPED: HUBLINE_SLOWLINK=1 runs it")
	}
	for _, row := range []struct{ rate, messages, size int }{
		{2_000, 2, 250_000}, {5_000, 3, 250_000}, {10_000, 20, 60_000},
	} {
		for _, e := range engines {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d messages of %d bytes, %d a second, %s, TLS %v", row.messages, row.size, row.rate, e.name,
					secure), func(t *testing.T) {
					e.skipVariant(t)
					t.Parallel()
					largeOverRelay(t, e, secure, row.rate, row.messages, largest(e, row.rate, row.size))
				})
			}
		}
	}
}

func largeOverRelay(t *testing.T, e engine, secure bool, rate, messages, size int) {
	c, h := overRelay(t, e, secure, rate, &way{KeepAlive: keepAlive(e)})
	began := time.Now()
	for i := range messages {
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{ID: strconv.Itoa(i), Body: make([]byte, size)}, nil))
	}
	ideal := time.Duration(messages*size) * time.Second / time.Duration(rate)
	ctx, cancel := context.WithTimeout(t.Context(), 3*ideal)
	defer cancel()
	require.NoError(t, c.Flush(ctx), "%d of %d; ideal %v", c.Stats().Acknowledged, messages, ideal)
	t.Logf("%v of %v, %d connections", time.Since(began).Round(time.Second), ideal, c.Stats().Connections)
	require.Len(t, h.Messages(), messages)
	require.EqualValues(t, 1, c.Stats().Connections)
}

// keepAlive returns the keep-alive with which an engine carries 250 KB at 2 KB a second: the
// default, except for paho, which announces the time between its pings.
func keepAlive(e engine) time.Duration {
	if strings.HasPrefix(e.name, "paho") {
		return 2 * time.Minute
	}
	return 0
}

// largest returns size, or less if an engine cannot carry that at this rate.
func largest(e engine, rate, size int) int {
	switch {
	case e.protocol == hubdata.HTTP:
		return min(size, rate*100) // the hub gives a request two minutes
	case e.boxed:
		return min(size, 180_000) // and a third, in an envelope
	}
	return size
}
