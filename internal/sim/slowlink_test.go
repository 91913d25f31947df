package sim_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
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

// overRelay sends messages of a size for the duration d, as fast as the link accepts them.
func overRelay(t *testing.T, e engine, secure bool, rate, size int, writeTimeout, d time.Duration) slowRun {
	h, creds := e.openHub(t)
	port := ports[e.protocol].plain
	if secure {
		port = ports[e.protocol].secure
	}
	addr, err := h.Listen(port, "127.0.0.1:0")
	require.NoError(t, err)
	w := &way{Plaintext: !secure, Addr: newRelay(t, addr.String(), rate).Addr().String(), WriteTimeout: writeTimeout}
	if secure {
		w.TLS = h.ClientTLS()
	}
	began := time.Now()
	c, err := device.New(creds, e.make(creds, w), &device.Options{OnStatus: func(s device.Status) {
		if s.Reason == device.ReasonConnectionLost {
			t.Logf("lost after %v: %v", time.Since(began).Round(time.Millisecond), s.Err)
		}
	}})
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.NoError(t, c.Open(ctx))
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
	const rate, size = 400_000, 60_000
	for _, e := range behindAHop() {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", e.name, secure), func(t *testing.T) {
				t.Parallel()
				var got slowRun
				for range 3 { // a busy machine may stall the process for longer than a write may take
					got = overRelay(t, e, secure, rate, size, time.Second, 4*time.Second)
					if got.connections == 1 && got.acknowledged > 10 {
						return
					}
				}
				require.EqualValues(t, 1, got.connections)
				require.Greater(t, got.acknowledged, uint64(10), "of about %d possible", 4*rate/size)
			})
		}
	}
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

// TestLongRunBehindASlowHop does the same with default options for the time in HUBLINE_SLOWLINK, to
// produce figures.
func TestLongRunBehindASlowHop(t *testing.T) {
	d, err := time.ParseDuration(os.Getenv("HUBLINE_SLOWLINK"))
	if err != nil {
		t.Skip("set HUBLINE_SLOWLINK to a duration such as 5m")
	}
	for _, rate := range []int{100_000, 20_000, 2_000} {
		for _, e := range behindAHop() {
			for _, secure := range []bool{false, true} {
				t.Run(fmt.Sprintf("%d KB a second, %s, TLS %v", rate/1000, e.name, secure), func(t *testing.T) {
					t.Parallel()
					got := overRelay(t, e, secure, rate, 60_000, 0, d)
					t.Logf("%d acknowledged of about %d possible, %d copies, %d connections", got.acknowledged,
						int(d.Seconds())*rate/60_000, got.copies, got.connections)
				})
			}
		}
	}
}
