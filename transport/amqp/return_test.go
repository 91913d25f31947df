package amqp_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
)

// After an outage all devices return right after the device that dials, which waits as its policy
// says.
func TestAllDevicesReturnWithTheOneThatDials(t *testing.T) {
	for _, out := range []time.Duration{2 * time.Second, 20 * time.Second, 97 * time.Second, 5 * time.Minute,
		22 * time.Minute} {
		t.Run(fmt.Sprint("after ", out), func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				const n = 200
				mux := amqp.NewMux(h.options())
				var mu sync.Mutex // guards back
				var back []time.Time
				for i := range n {
					c, err := device.New(h.device(t, fmt.Sprintf("fleet-%d", i)), mux, &device.Options{
						ReconnectSpread: -1, // what is left is the delay of the device that dials
						Trace: &device.Trace{
							Connected: func(transport.Info, time.Duration) {
								mu.Lock()
								back = append(back, time.Now())
								mu.Unlock()
							},
						},
					})
					require.NoError(t, err)
					defer c.Close()
					require.NoError(t, c.Start())
				}
				take := func() []time.Time {
					mu.Lock()
					defer mu.Unlock()
					all := back
					back = nil
					return all
				}
				time.Sleep(time.Minute)
				require.Len(t, take(), n)
				absent := h.inject(fault.Fault{Kind: fault.Absent})
				before := h.dials.Load()
				time.Sleep(out)
				during := h.dials.Load() - before
				require.Less(t, during, int32(20+out/(3*time.Second)), "one device dials for all")
				absent.Remove()
				began := time.Now()
				time.Sleep(30 * time.Second)
				all := take()
				require.Len(t, all, n)
				first, last := all[0], all[n-1]
				t.Logf("%d dials during the outage; after it the first was back in %v, the last in %v", during, first.Sub(began),
					last.Sub(began))
				require.LessOrEqual(t, first.Sub(began), 10*time.Second, "its own delay")
				require.LessOrEqual(t, last.Sub(first), time.Second, "not their own delays in addition")
				require.EqualValues(t, 1, h.dials.Load()-before-during)
			})
		})
	}
}

// A silent connection is lost for all its devices half of IdleTimeout after the request, as over
// the other transports after AckTimeout.
func TestASharedConnectionThatFallsSilent(t *testing.T) {
	for name, send := range map[string]func(i int) bool{
		"all send":  func(int) bool { return true },
		"one sends": func(i int) bool { return i == 0 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, h *hub) {
				all := fleet(t, h, amqp.NewMux(h.options()), 20)
				time.Sleep(time.Minute)
				h.Silence()
				began := time.Now()
				var sent atomic.Int32
				each(all, func(i int, c *device.Client) {
					if !send(i) {
						return
					}
					if err := c.Send(t.Context(), numbered(i)); err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took > 31*time.Second {
						t.Errorf("device %d had its answer after %v", i, took)
					}
					sent.Add(1)
				})
				require.NotZero(t, sent.Load())
				require.EqualValues(t, 2, h.dials.Load())
				each(all, func(_ int, c *device.Client) { _ = c.Close() })
			})
		})
	}
}
