package device_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// Each try that a gate admitted is reported once, in a random life of a client.
func TestEveryTryIsReportedOnceInARandomLife(t *testing.T) {
	for seed := range uint64(40) {
		bubble(t, func(t *testing.T) {
			var mu sync.Mutex
			rng := rand.New(rand.NewPCG(seed, 1))
			n := func(k int) int { mu.Lock(); defer mu.Unlock(); return rng.IntN(k) }
			f := &fake{}
			f.dial = func(_ int, ctx context.Context) error {
				switch n(6) {
				case 0:
					return lost(transport.Network)
				case 1:
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(time.Duration(n(40)) * time.Second):
					}
				case 2:
					if n(10) == 0 {
						return lost(transport.Forbidden)
					}
				}
				return nil
			}
			f.verdict = func(int, transport.Item) error {
				switch n(12) {
				case 0:
					return refused(transport.Unavailable)
				case 1:
					return refused(transport.TooLarge)
				case 2:
					return errHold
				case 3:
					return refused(transport.Throttled)
				}
				return nil
			}
			wc, wm := newWitness(retrypolicy.Fixed{Delay: time.Second}),
				newWitness(retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Fixed{Delay: time.Second}})
			gate := func(a retrypolicy.Attempt) retrypolicy.Decision {
				switch n(10) {
				case 0:
					return retrypolicy.Decision{Retry: true, Delay: time.Duration(n(5000)) * time.Millisecond}
				case 1:
					return retrypolicy.Decision{Retry: n(3) != 0}
				}
				return retrypolicy.Decision{Retry: true}
			}
			wc.admit, wm.admit = gate, gate
			o := &device.Options{RetryPolicy: wc, MessagePolicy: wm, StableTime: time.Duration(1+n(40)) * time.Second,
				MaxMessages: 40, Overflow: device.OverflowDropOldest, Window: 1 + n(20),
				ReconnectSpread: time.Duration(n(3)) * time.Second, Rand: nil}
			if n(2) == 0 {
				o.TryAgainAfter = 5 * time.Second
			}
			if n(3) == 0 {
				o.OutageLimit = 20 * time.Second
			}
			if n(3) == 0 {
				o.Dials = device.NewDialLimiter(1, time.Second)
			}
			c, _ := client(t, f, o)
			_ = c.Start()
			for i := range 200 {
				switch n(8) {
				case 0, 1, 2, 3:
					m := &transport.Message{ID: strconv.Itoa(i)}
					if n(4) == 0 {
						m.Expires = time.Now().Add(time.Duration(n(4000)+1) * time.Millisecond)
					}
					if n(3) == 0 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n(900)+1)*time.Millisecond)
						_ = c.Send(ctx, m)
						cancel()
					} else {
						_ = c.Enqueue(t.Context(), m, nil)
					}
				case 4:
					_ = c.Reconnect()
				case 5:
					f.mu.Lock()
					if len(f.sessions) > 0 {
						s := f.sessions[len(f.sessions)-1]
						select {
						case s.kill <- lost(transport.Network):
						default:
						}
					}
					f.mu.Unlock()
				case 6:
					_ = c.Start()
				default:
					time.Sleep(time.Duration(n(3000)) * time.Millisecond)
				}
			}
			time.Sleep(time.Duration(n(3000)) * time.Millisecond)
			if err := c.Close(); err != nil {
				t.Errorf("seed %d: close %v", seed, err)
			}
			for name, w := range map[string]*witness{"conn": wc, "msg": wm} {
				w.mu.Lock()
				for s, k := range w.inFlight {
					if k != 0 {
						t.Errorf("seed %d: %s %v in flight %d", seed, name, s, k)
					}
				}
				w.mu.Unlock()
			}
		})
	}
}
