package device_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

func TestAPolicyDoesNotMakeAClientSpinByAccident(t *testing.T) {
	for name, p := range map[string]retrypolicy.Policy{
		"0": retrypolicy.Func(func(int, error) (bool, time.Duration) { return true, 0 }),
		"a shift that overflows": retrypolicy.Func(func(retry int, _ error) (bool, time.Duration) {
			return true, time.Second << (retry + 63)
		}),
		"a forgotten unit": retrypolicy.Fixed{Delay: 5},
	} {
		run(t, name, func(t *testing.T) {
			f := &fake{dial: down}
			started(t, f, &device.Options{RetryPolicy: p, ReconnectSpread: -1})
			time.Sleep(10 * time.Second)
			require.LessOrEqual(t, len(f.dialTimes()), 102)
			require.Less(t, gaps(f)[0], time.Millisecond, "the first retry is at once")
			require.GreaterOrEqual(t, gaps(f)[1], 100*time.Millisecond)
		})
	}
}

func TestAPolicyThatHoldsAttemptsDoesNotMakeAClientSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		f := &fake{}
		p := hooked{Policy: retrypolicy.Fixed{Delay: time.Second}, admit: func(retrypolicy.Attempt) retrypolicy.Decision {
			asked++
			return retrypolicy.Decision{Retry: true, Delay: 5} // a forgotten unit
		}}
		c, _ := client(t, f, &device.Options{RetryPolicy: p, ReconnectSpread: -1})
		require.NoError(t, c.Start())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.NoError(t, c.SetRetryPolicy(retrypolicy.NoRetry{}))
		require.LessOrEqual(t, asked, 3)
		synctest.Wait()
		require.Equal(t, device.StateConnected, c.Status().State)

		asked = 0
		require.NoError(t, c.SetMessagePolicy(p))
		require.NoError(t, c.Enqueue(t.Context(), msg(0), nil))
		_ = async(func() error { _, err := c.GetTwin(t.Context()); return err })
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.LessOrEqual(t, asked, 6)
		require.NoError(t, c.SetMessagePolicy(nil))
	})
}

// A program may call Reconnect for each status, by mistake or because its network comes and goes.
func TestReconnectForEachStatusDoesNotMakeAClientSpin(t *testing.T) {
	for name, tc := range map[string]struct {
		dial  func(int, context.Context) error
		trace *device.Trace
	}{
		"no hub": {dial: down}, "a hub": {},
		"a callback that fails": {trace: &device.Trace{Connected: func(transport.Info, time.Duration) { panic("oh dear") }}},
	} {
		run(t, name, func(t *testing.T) {
			f := &fake{dial: tc.dial}
			var c *device.Client
			calls := 0
			c, _ = client(t, f, &device.Options{Trace: tc.trace, TryAgainAfter: time.Hour, OnStatus: func(device.Status) {
				if calls++; calls < 2000 {
					_ = c.Reconnect()
				}
			}})
			require.NoError(t, c.Start())
			time.Sleep(10 * time.Second)
			require.LessOrEqual(t, len(f.dialTimes()), 102)
			require.Greater(t, len(f.dialTimes()), 90)
			require.Zero(t, gaps(f)[0], "the first is at once")
		})
	}
}

// A program may start over for each end. It must not dial at the speed of its network.
func TestStartAtEachEndDoesNotMakeAClientSpin(t *testing.T) {
	for name, start := range map[string]func(*device.Client){
		"Start":     func(c *device.Client) { _ = c.Start() },
		"Open":      func(c *device.Client) { go func() { _ = c.Open(context.Background()) }() },
		"Reconnect": func(c *device.Client) { _ = c.Start(); _ = c.Reconnect() },
	} {
		run(t, name, func(t *testing.T) {
			f := &fake{dial: down}
			var c *device.Client
			calls := 0
			c, _ = client(t, f, &device.Options{RetryPolicy: retrypolicy.NoRetry{}, OnStatus: func(s device.Status) {
				if s.State == device.StateDisconnected && s.Reason != device.ReasonClientClosed && calls < 2000 {
					calls++
					start(c)
				}
			}})
			require.NoError(t, c.Start())
			time.Sleep(10 * time.Second)
			require.LessOrEqual(t, len(f.dialTimes()), 102)
			require.Greater(t, len(f.dialTimes()), 90)
			require.Zero(t, gaps(f)[0], "the first is at once")
		})
	}
}

// A program may choose the policy for each status. A wait that the new policy leaves as it is makes
// no further status.
func TestAPolicyThatIsSetForEachStatusDoesNotMakeAClientSpin(t *testing.T) {
	hour := retrypolicy.Fixed{Delay: time.Hour}
	held := hooked{Policy: hour, admit: func(a retrypolicy.Attempt) retrypolicy.Decision {
		return retrypolicy.Decision{Retry: true, Delay: time.Hour + time.Duration(a.Rand%uint64(time.Hour))}
	}}
	for name, tc := range map[string]struct {
		f *fake
		p retrypolicy.Policy
	}{
		"no hub": {&fake{dial: down}, hour}, "a pause": {&fake{verdict: refuse(transport.Unavailable)}, hour},
		"a gate": {&fake{}, held},
	} {
		run(t, name, func(t *testing.T) {
			var c *device.Client
			calls := 0
			c, _ = client(t, tc.f, &device.Options{RetryPolicy: tc.p, ReconnectSpread: time.Minute, Rand: newDraws(1),
				OnStatus: func(device.Status) {
					if calls++; calls < 2000 {
						_ = c.SetRetryPolicy(tc.p)
					}
				}})
			require.NoError(t, c.Start())
			require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
			time.Sleep(time.Minute)
			synctest.Wait()
			require.LessOrEqual(t, calls, 5)
		})
	}
}

func TestReconnectDuringAnAttemptCountsIfThatFails(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(n int, _ context.Context) error {
			time.Sleep(10 * time.Second)
			if n == 1 {
				return lost(transport.Network)
			}
			return nil
		}}
		c := started(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
		for range 2 {
			time.Sleep(5 * time.Second)
			require.NoError(t, c.Reconnect())
			time.Sleep(6 * time.Second)
		}
		time.Sleep(time.Hour)
		require.Equal(t, []time.Duration{10 * time.Second}, gaps(f))
	})
}

func TestImmediatelyHasNoLeastDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: down}
		c, _ := client(t, f, &device.Options{ReconnectSpread: -1,
			RetryPolicy: retrypolicy.MaxAttempts{Total: 5, Policy: retrypolicy.Immediately{}}})
		require.ErrorIs(t, c.Open(t.Context()), transport.RetryExpired)
		require.Equal(t, []time.Duration{0, 0, 0, 0}, gaps(f))
	})
}

func TestANegativeDelayIsAnErrorOfThePolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{dial: down}, &device.Options{RetryPolicy: constant(-time.Second)})
		err := c.Open(t.Context())
		require.ErrorIs(t, err, retrypolicy.ReasonNegativeDelay)
		require.ErrorContains(t, err, "the retry policy returned a negative delay")
		require.ErrorIs(t, err, transport.Network, "with the failure that the policy was asked about")
	})
}

func TestARefusedMessageIsNotSentAgainWithoutEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: refuse(transport.Unavailable)}
		c := opened(t, f, &device.Options{MessagePolicy: retrypolicy.Func(
			func(int, error) (bool, time.Duration) { return true, 0 })})
		require.NoError(t, c.Enqueue(t.Context(), &transport.Message{Body: []byte("x")}, nil))
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, c.Stats().Resent, uint64(101))
	})
}
