package sim_test

import (
	"context"
	"io"
	"log"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
)

// Neither a closed connection nor a failed one leaves a socket open.
func TestNoSocketIsLeftOpen(t *testing.T) { withEachEngine(t, noSocketIsLeftOpen) }

func noSocketIsLeftOpen(t *testing.T, with engine) {
	if runtime.GOOS != "linux" {
		t.Skip("SKIPPED: open files can be counted on Linux only")
	}
	sockets := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		require.NoError(t, err)
		return len(entries)
	}
	hub, creds := with.openHub(t)
	addr, err := hub.Listen(ports[with.protocol].secure, "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cycle := func(n int) {
		for i := range n {
			c, err := device.New(creds, with.make(creds, with.trusting(hub, way{Addr: addr.String()})),
				&device.Options{RetryPolicy: retrypolicy.NoRetry{}})
			require.NoError(t, err)
			if i%2 == 0 {
				hub.Inject(fault.Fault{Kind: fault.RefuseConnect, Code: 3})
				require.ErrorIs(t, c.Open(ctx), transport.Unavailable)
			} else {
				require.NoError(t, c.Open(ctx))
				require.NoError(t, c.Send(ctx, &transport.Message{}))
			}
			require.NoError(t, c.Close())
		}
		require.NoError(t, hub.Wait(ctx, func([]hubdata.Message) bool { return hub.Connections("") == 0 }))
	}
	cycle(4)
	before := sockets()
	cycle(60)
	require.Less(t, sockets(), before+10, "a leak would be one for each of 60 cycles")
}

// A silent peer is detected within documented times: with a message in flight after AckTimeout,
// otherwise after KeepAlive + PingTimeout and the 10 s interval at which ping answers are checked.
func TestASilentPeerIsFoundInTime(t *testing.T) { withEachEngine(t, aSilentPeerIsFoundInTime) }

func aSilentPeerIsFoundInTime(t *testing.T, with engine) {
	for name, idle := range map[string]bool{"idle": true, "sending": false} {
		t.Run(name, func(t *testing.T) {
			if idle && with.protocol == hubdata.HTTP {
				t.Skip("a device that has nothing to say says nothing over HTTP, and finds out with its next request")
			}
			testkit.Bubble(t, func(t *testing.T) {
				hub, creds := with.openHub(t)
				lost := make(chan time.Time, 10)
				w := with.inMemory(hub, false)
				w.KeepAlive, w.PingTimeout = 40*time.Second, 10*time.Second
				c, err := device.New(creds, with.make(creds, w),
					&device.Options{AckTimeout: 15 * time.Second, OnStatus: func(s device.Status) {
						if s.Reason == device.ReasonConnectionLost {
							lost <- time.Now()
						}
					}})
				require.NoError(t, err)
				require.NoError(t, c.Open(t.Context()))
				hub.Inject(fault.Fault{Kind: fault.HalfOpen, For: time.Second})
				start := time.Now()
				limit := 60 * time.Second
				if !idle {
					limit = 15 * time.Second
					require.NoError(t, c.Enqueue(t.Context(), &transport.Message{}, nil))
				}
				require.LessOrEqual(t, (<-lost).Sub(start), limit)
				require.NoError(t, c.Close())
			})
		})
	}
}

// The library prints nothing in any case: errors appear in the API and the status.
func TestNothingIsPrinted(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	log.SetOutput(w)
	printed := make(chan string, 1)
	go func() { // ends with the pipe
		all, _ := io.ReadAll(r)
		printed <- string(all)
	}()
	for seed := uint64(1000); seed < 1014; seed++ {
		p := drawPlan(seed, engines[seed%uint64(len(engines))])
		testkit.Bubble(t, func(t *testing.T) { play(t, p) })
	}
	os.Stdout, os.Stderr = stdout, stderr
	log.SetOutput(stderr)
	require.NoError(t, w.Close())
	require.Empty(t, <-printed)
}
