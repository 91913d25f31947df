package device_test

import (
	"context"
	"errors"
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

// A renewal that fails for now is tried again on the same session, as long as the token lasts. One
// that fails for good, or is not answered, leads to a planned replacement of the session.
func TestRenewalInPlaceThatFails(t *testing.T) {
	const s = time.Second
	after := func(k transport.Kind, d time.Duration) *transport.Error {
		e := refused(k)
		e.RetryAfter = d
		return e
	}
	tries := []time.Duration{50 * s, 75 * s, 87500 * time.Millisecond, 93750 * time.Millisecond,
		96875 * time.Millisecond} // with less than 5 s left, the session is replaced
	for name, row := range map[string]struct {
		err      error // nil: no answer
		times    int   // how often it fails, then it succeeds
		at       []time.Duration
		replaced time.Duration // 0: never
	}{
		"network":               {refused(transport.Network), 1, []time.Duration{50 * s, 75 * s}, 0},
		"unavailable for long":  {refused(transport.Unavailable), 9, tries, 96875 * time.Millisecond},
		"throttled":             {after(transport.Throttled, 40*s), 1, []time.Duration{50 * s, 90 * s}, 0},
		"throttled for long":    {after(transport.Throttled, time.Hour), 1, []time.Duration{50 * s, 95 * s}, 0},
		"throttled for ever":    {after(transport.Throttled, -1), 1, tries[:1], 50 * s},
		"unauthorized":          {refused(transport.Unauthorized), 1, tries[:1], 50 * s},
		"an error without kind": {errors.New("odd"), 1, tries[:1], 50 * s},
		"unsupported":           {refused(transport.Unsupported), 1, tries[:1], 50 * s},
		"no answer":             {nil, 1, tries[:1], 60 * s},
	} {
		run(t, name, func(t *testing.T) {
			start := time.Now()
			f := &fake{}
			f.expires = func() time.Time {
				if len(f.sessions) == 0 {
					return start.Add(100 * s)
				}
				return time.Time{}
			}
			var at []time.Duration
			f.request = func(*fakeSession, *transport.Request) (transport.Reply, bool) {
				at = append(at, time.Since(start))
				if len(at) <= row.times {
					return transport.Reply{Err: row.err}, row.err != nil
				}
				return transport.Reply{Expires: start.Add(time.Hour)}, true
			}
			failed := 0
			c, w := client(t, f, &device.Options{AckTimeout: 10 * s, RenewAt: 0.5,
				Trace: &device.Trace{Renewed: func(_ time.Time, err error) {
					if err != nil {
						failed++
					}
				}}})
			open(t, c)
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			require.Equal(t, row.at, at)
			if name != "unsupported" {
				require.Equal(t, min(row.times, len(at)), failed)
			}
			if row.replaced == 0 {
				require.Len(t, f.dialTimes(), 1)
				require.Equal(t, []device.Reason{device.ReasonConnecting, device.ReasonConnectionOK}, w.reasons())
				return
			}
			require.Len(t, f.dialTimes(), 2)
			require.Equal(t, row.replaced, f.dialTimes()[1].Sub(start))
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
