package device_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// What a useful connection must have done to reset the count of retries although it did not last.
func TestAUsefulConnectionBeginsTheCountAnew(t *testing.T) {
	const s = time.Second
	anew, goesOn := []time.Duration{0, 0, 0}, []time.Duration{100 * ms, 150 * ms, 250 * ms}
	for name, tc := range map[string]struct {
		up     time.Duration
		send   int  // messages, which are acknowledged
		get    bool // a cloud-to-device message
		fails  bool // its handler
		takes  time.Duration
		loss   transport.Kind
		delays []time.Duration
	}{
		"a message acknowledged":     {s, 1, false, false, 0, transport.Network, anew},
		"a command received":         {s, 0, true, false, 0, transport.Network, anew},
		"a command released":         {s, 0, true, true, 0, transport.Network, goesOn},
		"a command handled too late": {s, 0, true, false, 1500 * ms, transport.Network, goesOn},
		"nothing acknowledged":       {s, 0, false, false, 0, transport.Network, goesOn},
		"half a second":              {500 * ms, 1, false, false, 0, transport.Network, anew},
		"less than half a second":    {499 * ms, 15, false, false, 0, transport.Network, goesOn},
		"many messages in the delay": {100 * ms, 16, false, false, 0, transport.Network, anew},
		"many messages in less": {40 * ms, 16, false, false, 0, transport.Network,
			[]time.Duration{60 * ms, 60 * ms, 60 * ms}},
		"the failure has a slow pace": {s, 16, false, false, 0, transport.Throttled,
			[]time.Duration{10 * s, 12500 * ms, 17500 * ms}},
	} {
		run(t, name, func(t *testing.T) {
			f := &fake{}
			c, w := client(t, f, nil)
			c.HandleMessages(func(context.Context, *transport.Message) error {
				time.Sleep(tc.takes)
				if tc.fails {
					return errors.New("not now")
				}
				return nil
			})
			open(t, c)
			for range 3 {
				for range tc.send {
					require.NoError(t, c.Send(t.Context(), msg(1)))
				}
				if tc.get {
					require.True(t, f.last().deliver("1"))
				}
				time.Sleep(tc.up)
				f.last().kill <- lost(tc.loss)
				synctest.Wait()
				open(t, c)
			}
			synctest.Wait()
			var delays []time.Duration
			for _, s := range w.list() {
				if s.Reason == device.ReasonConnectionLost {
					delays = append(delays, s.Delay)
				}
			}
			require.Equal(t, tc.delays, delays)
		})
	}
}

// After a longer delay a useful connection must be up longer: five times the delay. Its uptime
// counts toward the next one.
func TestAUsefulConnectionIsUpForLongerThanItsDelay(t *testing.T) {
	for up, again := range map[time.Duration]time.Duration{5 * time.Second: 0,
		5*time.Second - 1: 2 * time.Second} {
		withFake(t, func(t *testing.T, f *fake) {
			c, _ := client(t, f, &device.Options{RetryPolicy: retrypolicy.Func(func(retry int, _ error) (bool, time.Duration) {
				return true, time.Duration(retry) * time.Second
			})})
			open(t, c)
			f.lose(transport.Network, 0)
			open(t, c)
			require.NoError(t, c.Send(t.Context(), msg(1)))
			time.Sleep(up)
			f.lose(transport.Network, 0)
			require.Equal(t, again, c.Status().Delay, "up %v", up)
		})
	}
}

// A peer that acknowledges a message on each connection and hangs up is dialed ever less often if
// it hangs up at once, and in any case less than twice a second.
func TestAPeerThatHangsUpAfterAMessageIsNotHammered(t *testing.T) {
	quick := retrypolicy.ExponentialBackoffWithJitter{C: 10 * ms, Cmin: 10 * ms, Cmax: 10 * time.Second, Jd: 0.5, Ju: 0.25}
	for _, tc := range []struct {
		up      time.Duration
		policy  retrypolicy.Policy // nil: the default
		written int                // messages with QoS 0 on each connection
		most    int
	}{{0, nil, 0, 380}, {400 * ms, nil, 0, 370}, {600 * ms, nil, 0, 6010}, {400 * ms, quick, 0, 375}, {0, nil, 20, 380}} {
		bubble(t, func(t *testing.T) {
			f, c := connected(t, &device.Options{RetryPolicy: tc.policy})
			for start := time.Now(); time.Since(start) < time.Hour; {
				for range tc.written {
					require.NoError(t, c.Send(t.Context(), &transport.Message{Body: []byte("w"), AtMostOnce: true}))
				}
				require.NoError(t, c.Send(t.Context(), msg(1)))
				time.Sleep(tc.up)
				f.lose(transport.Network, 0)
				open(t, c)
			}
			require.Less(t, len(f.dialTimes()), tc.most, "up for %v each time, in an hour", tc.up)
		})
	}
}
