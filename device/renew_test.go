package device_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
)

// A session that supports it renews its token in place, repeatedly, without a disconnect.
func TestRenewalInPlace(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{expires: func() time.Time { return time.Now().Add(100 * time.Second) }}
		var at []time.Duration
		start := time.Now()
		f.request = func(_ *fakeSession, r *transport.Request) (transport.Reply, bool) {
			require.Equal(t, transport.OpRenew, r.Op)
			at = append(at, time.Since(start))
			return transport.Reply{Expires: time.Now().Add(200 * time.Second)}, true
		}
		var told []time.Duration
		c, w := client(t, f, &device.Options{Trace: &device.Trace{Renewed: func(expires time.Time, err error) {
			require.NoError(t, err)
			told = append(told, time.Until(expires))
		}}})
		open(t, c)
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, []time.Duration{85 * time.Second, 255 * time.Second, 425 * time.Second, 595 * time.Second}, at)
		require.Len(t, told, 4)
		require.Equal(t, 200*time.Second, told[0])
		require.Len(t, f.dialTimes(), 1)
		require.Equal(t, []device.Reason{device.ReasonConnecting, device.ReasonConnectionOK}, w.reasons())
	})
}

// A renewal that fails, or is not answered, leads to a planned replacement of the session.
func TestRenewalInPlaceThatFails(t *testing.T) {
	for name, row := range map[string]struct {
		answer bool
		after  time.Duration
	}{"refused": {true, 85 * time.Second}, "no answer": {false, 95 * time.Second}} {
		run(t, name, func(t *testing.T) {
			start := time.Now()
			f := &fake{expires: func() time.Time { return start.Add(100 * time.Second) }}
			f.request = func(*fakeSession, *transport.Request) (transport.Reply, bool) {
				return transport.Reply{Err: refused(transport.Unavailable)}, row.answer
			}
			failed := 0
			c, w := client(t, f, &device.Options{AckTimeout: 10 * time.Second,
				Trace: &device.Trace{Renewed: func(_ time.Time, err error) {
					require.Error(t, err)
					failed++
				}}})
			open(t, c)
			time.Sleep(97 * time.Second)
			synctest.Wait()
			require.Equal(t, 1, failed)
			require.Equal(t, row.after, f.dialTimes()[1].Sub(start))
			require.Equal(t, device.ReasonTokenRenewal, w.reasons()[2])
		})
	}
}

// A token that has expired by the device's clock, but not by the hub's, is not renewed again and
// again.
func TestAClockAheadMakesNoRenewalStorm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{expires: func() time.Time { return time.Now().Add(-10 * time.Minute) }}
		f.dial = func(n int, ctx context.Context) error {
			if n > 500 {
				<-ctx.Done()
				return ctx.Err()
			}
			time.Sleep(time.Second) // a dial takes a second
			return nil
		}
		started(t, f, nil)
		time.Sleep(5 * time.Minute)
		require.Less(t, len(f.dialTimes()), 20)
	})
}

// A session that is replaced waits for what its end would lose: a running handler, the answer to a
// method, a twin call.
func TestARenewalWaitsForWorkInFlight(t *testing.T) {
	for name, begin := range map[string]func(f *fake, c *device.Client){
		"message": func(f *fake, _ *device.Client) { f.last().deliver("1") },
		"method":  func(f *fake, _ *device.Client) { f.last().call("1", "work", "") },
		"twin":    func(_ *fake, c *device.Client) { go func() { _, _ = c.GetTwin(context.Background()) }() },
	} {
		run(t, name, func(t *testing.T) {
			start := time.Now()
			var done time.Duration
			end := func() { done = time.Since(start) }
			f := &fake{expires: func() time.Time { return start.Add(100 * time.Second) }}
			f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
				if r.Op == transport.OpTwinGet {
					time.AfterFunc(2*time.Second, func() {
						s.cfg.Sink.Reply(r.ID, transport.Reply{Status: 200, Body: []byte(twinDoc)})
						end()
					})
					return transport.Reply{}, false
				}
				return transport.Reply{Err: refused(transport.Unsupported)}, r.Op == transport.OpRenew
			}
			c, w := client(t, f, nil)
			require.NoError(t, c.HandleMessages(func(context.Context, *transport.Message) error {
				time.Sleep(2 * time.Second)
				end()
				return nil
			}))
			require.NoError(t, c.HandleMethod("work", func(context.Context, *device.MethodCall) (int, []byte) {
				time.Sleep(2 * time.Second)
				end()
				return 200, nil
			}))
			open(t, c)
			time.Sleep(84 * time.Second)
			begin(f, c)
			time.Sleep(10 * time.Second)
			synctest.Wait()
			require.Equal(t, 86*time.Second, done)
			require.Equal(t, done, f.dialTimes()[1].Sub(start), "replaced at its end")
			require.Len(t, f.dialTimes(), 2)
			require.Equal(t, device.ReasonTokenRenewal, w.reasons()[2])
			require.Len(t, f.verdicts(), map[string]int{"message": 1}[name])
			require.Len(t, f.answers(), map[string]int{"method": 1}[name])
			require.Len(t, f.requests(), map[string]int{"message": 1, "method": 2, "twin": 2}[name], "each once")
		})
	}
}
