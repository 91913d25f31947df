package device_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

const ms = time.Millisecond

// gaps returns the times between dials.
func gaps(f *fake) (all []time.Duration) {
	times := f.dialTimes()
	for i := 1; i < len(times); i++ {
		all = append(all, times[i].Sub(times[i-1]))
	}
	return all
}

// The delays between dials follow the documented formula, to the nanosecond. Package retrypolicy
// tests the formula for other draws.
func TestReconnectDelaysAreTheFormulas(t *testing.T) {
	bubble(t, func(t *testing.T) {
		want := []time.Duration{100 * ms, 175*ms - 1, 325*ms - 3, 625*ms - 7, 1225*ms - 15, 2425*ms - 31, 4825*ms - 63,
			9625*ms - 127, 10000 * ms, 10000 * ms}
		f := &fake{dial: func(n int, _ context.Context) error {
			if n <= len(want) {
				return lost(transport.Network)
			}
			return nil
		}}
		c, w := client(t, f, &device.Options{Rand: func() uint64 { return math.MaxUint64 }})
		open(t, c)
		require.Equal(t, want, gaps(f))
		synctest.Wait()
		var told []time.Duration
		for i, s := range w.list() {
			if s.Reason == device.ReasonAttemptFailed {
				told = append(told, s.Delay)
				require.Equal(t, len(told), s.Retry)
				require.Equal(t, device.ReasonConnecting, w.list()[i+1].Reason, "each wait is followed by its attempt")
				require.Equal(t, s.Retry, w.list()[i+1].Retry)
			}
		}
		require.Equal(t, want, told, "the status tells the delay that was kept")
	})
}

// The filter is asked first, in every loop. The policy is not asked about terminal errors.
func TestPolicyIsNeverAskedAboutATerminalError(t *testing.T) {
	for _, rule := range errfilter.Rules() {
		if rule.Retry {
			continue
		}
		for _, when := range []string{"first dial", "redial", "live session", "message"} {
			if rule.Kind == transport.Cancelled && when != "message" {
				continue // the context was not the caller's: TestTheEndOfAnotherContextIsATimeout
			}
			run(t, rule.Kind.String()+"/"+when, func(t *testing.T) {
				asked := 0
				policy := retrypolicy.Func(func(_ int, last error) (bool, time.Duration) {
					if errors.Is(last, rule.Kind) {
						asked++
					}
					return true, time.Second
				})
				f := &fake{}
				switch when {
				case "first dial":
					f.dial = failing(lost(rule.Kind))
				case "redial":
					f.dial = failing(lost(transport.Network), lost(rule.Kind))
				case "message":
					f.verdict = refuse(rule.Kind)
				}
				c, _ := client(t, f, &device.Options{RetryPolicy: policy})
				err := c.Open(t.Context())
				switch when {
				case "live session":
					require.NoError(t, err)
					f.last().kill <- lost(rule.Kind)
					synctest.Wait()
					if rule.Kind == transport.Unauthorized {
						// A live session's token may have expired: one fresh token is tried, without asking the
						// policy.
						require.Equal(t, device.StateConnected, c.Status().State)
						f.last().kill <- lost(rule.Kind)
						synctest.Wait()
					}
					require.Equal(t, device.StateDisconnected, c.Status().State)
					require.Equal(t, device.ReasonNotRetryable, c.Status().Reason)
					require.ErrorIs(t, c.Status().Err, rule.Kind)
				case "message":
					require.NoError(t, err)
					require.ErrorIs(t, c.Send(t.Context(), msg(1)), rule.Kind)
					require.Equal(t, device.StateConnected, c.Status().State, "a message refused for good fails alone")
				default:
					require.ErrorIs(t, err, rule.Kind)
					require.Equal(t, device.ReasonNotRetryable, c.Status().Reason)
				}
				require.Zero(t, asked)
			})
		}
	}
}

func TestPolicyGetsTheLatestErrorAndTheTrueCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		errs := []error{lost(transport.Network), lost(transport.Timeout), lost(transport.Unavailable),
			lost(transport.Network)}
		policy := &recorder{delay: time.Second}
		f := &fake{dial: func(n int, ctx context.Context) error {
			if n <= len(errs) {
				time.Sleep(time.Duration(n) * time.Minute / 60)
				return errs[n-1]
			}
			return nil
		}}
		opened(t, f, &device.Options{RetryPolicy: policy})
		require.Len(t, policy.asked, len(errs))
		elapsed := time.Duration(0)
		for i, a := range policy.asked {
			elapsed += time.Duration(i+1) * time.Second
			require.Same(t, errs[i], a.Err)
			require.Equal(t, transport.KindOf(errs[i]), a.Kind)
			require.Equal(t, transport.ScopeConnection, a.Scope)
			require.Equal(t, i+1, a.Retry)
			require.Equal(t, elapsed, a.Elapsed)
			elapsed += time.Second
		}
	})
}

// recorder records the attempts that it is asked about.
type recorder struct {
	asked []retrypolicy.Attempt
	delay time.Duration
}

func (r *recorder) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	r.asked = append(r.asked, a)
	return retrypolicy.Decision{Retry: true, Delay: r.delay}
}

func constant(d time.Duration) retrypolicy.Policy {
	return retrypolicy.Func(func(int, error) (bool, time.Duration) { return true, d })
}

func TestPolicyChangedWhileWaitingDecidesAnew(t *testing.T) {
	for _, tc := range []struct {
		name string
		next retrypolicy.Policy
		want time.Duration // from the failure to the next dial; negative: never
	}{
		{"shorter than what has passed", constant(10 * time.Second), 20 * time.Second},
		{"shorter", constant(30 * time.Second), 30 * time.Second},
		{"longer", constant(300 * time.Second), 300 * time.Second},
		{"stop", retrypolicy.NoRetry{}, -1},
	} {
		run(t, tc.name, func(t *testing.T) {
			f := &fake{dial: failing(lost(transport.Network))}
			c := started(t, f, &device.Options{RetryPolicy: constant(100 * time.Second)})
			time.Sleep(20 * time.Second)
			require.NoError(t, c.SetRetryPolicy(tc.next))
			if tc.want < 0 {
				synctest.Wait()
				require.Equal(t, device.ReasonRetryExpired, c.Status().Reason)
				return
			}
			open(t, c)
			require.Equal(t, []time.Duration{tc.want}, gaps(f))
		})
	}
}

func TestSetRetryPolicyRefusesParametersThatMakeNoSense(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, nil)
		for _, p := range []retrypolicy.Policy{nil, retrypolicy.ExponentialBackoffWithJitter{C: -1},
			retrypolicy.ExponentialBackoffWithJitter{Cmin: 2, Cmax: 1}} {
			require.ErrorIs(t, c.SetRetryPolicy(p), transport.Invalid)
			_, err := device.New(creds(), &fake{}, &device.Options{RetryPolicy: retrypolicy.ExponentialBackoffWithJitter{C: -1}})
			require.ErrorIs(t, err, transport.Invalid)
		}
	})
}

func TestRetryAfterLongerThanTheDelayIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		long, short := lost(transport.Unavailable), lost(transport.Unavailable)
		long.RetryAfter, short.RetryAfter = 42*time.Second, time.Millisecond
		f := &fake{dial: failing(long, short)}
		opened(t, f, nil)
		require.Equal(t, []time.Duration{42 * time.Second, 150 * ms}, gaps(f))
	})
}

func TestANegativeRetryAfterEndsTheRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		never := lost(transport.Unavailable)
		never.RetryAfter = -1
		c, _ := client(t, &fake{dial: failing(never)}, nil)
		require.ErrorIs(t, c.Open(t.Context()), transport.Unavailable)
		require.Equal(t, device.ReasonNotRetryable, c.Status().Reason)
	})
}

func TestRetryCountIsResetOnlyAfterAStableTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, c := connected(t, &device.Options{StableTime: time.Minute})
		var waits []time.Duration
		for _, up := range []time.Duration{time.Second, time.Second, time.Second, 59 * time.Second, time.Minute,
			time.Second} {
			time.Sleep(up)
			lostAt := time.Now()
			f.lose(transport.Network, 0)
			open(t, c)
			times := f.dialTimes()
			waits = append(waits, times[len(times)-1].Sub(lostAt))
		}
		require.Equal(t, []time.Duration{100 * ms, 150 * ms, 250 * ms, 450 * ms, 100 * ms, 150 * ms}, waits)
	})
}

// Throttled connects are paced: at least C = 5 s, Cmin = 10 s, Cmax = 60 s, whatever the ordinary
// policy decides, unless PacedPolicy is set.
func TestThrottledConnectsArePaced(t *testing.T) {
	throttled := failing(lost(transport.Throttled), lost(transport.Throttled), lost(transport.Quota),
		lost(transport.ClockUnset), lost(transport.Throttled), lost(transport.Throttled))
	for _, tc := range []struct {
		name string
		o    device.Options
		want []time.Duration
	}{
		{"default", device.Options{}, []time.Duration{10 * time.Second, 12500 * ms, 17500 * ms, 27500 * ms, 47500 * ms,
			60 * time.Second}},
		{"a slower policy stays", device.Options{RetryPolicy: constant(90 * time.Second)},
			[]time.Duration{90 * time.Second, 90 * time.Second, 90 * time.Second, 90 * time.Second, 90 * time.Second,
				90 * time.Second}},
		{"own paced policy", device.Options{PacedPolicy: constant(time.Second)},
			[]time.Duration{time.Second, time.Second, time.Second, time.Second, time.Second, time.Second}},
	} {
		run(t, tc.name, func(t *testing.T) {
			f := &fake{dial: throttled}
			opened(t, f, &tc.o)
			require.Equal(t, tc.want, gaps(f))
		})
	}
	run(t, "a veto stays a veto", func(t *testing.T) {
		c, _ := client(t, &fake{dial: throttled}, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		err := c.Open(t.Context())
		require.ErrorIs(t, err, transport.RetryExpired)
		require.ErrorIs(t, err, transport.Throttled)
	})
}

// A refused message pauses all sending, with one decision. Then refused messages are sent first, in
// order, and not marked as sent before.
func TestARefusedMessagePausesAllAndGoesAgainInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		policy := &recorder{delay: 7 * time.Second}
		f := &fake{}
		f.verdict = func(_ int, it transport.Item) error {
			if time.Since(start) < 7*time.Second && it.Msg.ID != "2" {
				synctest.Wait() // the loop has seen that the window is full
				return refused(transport.Unavailable)
			}
			return nil
		}
		c, w := client(t, f, &device.Options{MessagePolicy: policy, Window: 3})
		var rs [5]device.Receipt
		for i := range rs {
			require.NoError(t, c.Enqueue(t.Context(), msg(i+1), &rs[i]))
		}
		open(t, c)
		for i := range rs {
			require.NoError(t, rs[i].Wait(t.Context()))
		}
		require.Equal(t, 7*time.Second, time.Since(start))
		require.Equal(t, []string{"1", "2", "3", "1", "3", "4", "5"}, f.ids())
		for _, r := range f.received() {
			require.False(t, r.again)
		}
		require.Len(t, policy.asked, 1, "one decision for one incident")
		require.Equal(t, transport.ScopeOperation, policy.asked[0].Scope)
		synctest.Wait()
		require.Equal(t, []device.Reason{device.ReasonConnecting, device.ReasonConnectionOK, device.ReasonPaused,
			device.ReasonConnectionOK},
			w.reasons())
		require.Equal(t, 7*time.Second, w.list()[2].Delay)
	})
}

func TestMessagePolicyThatStopsFailsThatMessageAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: func(_ int, it transport.Item) error {
			if it.Msg.ID == "1" {
				return refused(transport.Unavailable)
			}
			return nil
		}}
		c, _ := client(t, f, nil)
		require.NoError(t, c.SetRetryPolicy(retrypolicy.Func(func(retry int, _ error) (bool, time.Duration) {
			return retry < 3, time.Second
		})))
		var r, other device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &r))
		require.NoError(t, c.Enqueue(t.Context(), msg(2), &other))
		open(t, c) // both are sent at once
		require.NoError(t, other.Wait(t.Context()))
		err := r.Wait(t.Context())
		require.ErrorIs(t, err, transport.RetryExpired)
		require.ErrorIs(t, err, transport.Unavailable)
		require.Equal(t, device.StateConnected, c.Status().State)
		require.Equal(t, []string{"1", "2", "1", "1"}, f.ids())
	})
}

func TestPolicyChangedDuringAPauseDecidesAnew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: refuseOnce(transport.Unavailable)}
		c := opened(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
		start := time.Now()
		time.AfterFunc(10*time.Second, func() { _ = c.SetRetryPolicy(constant(15 * time.Second)) })
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.Equal(t, 15*time.Second, time.Since(start))
	})
}

// A reconnect does not cut short a pause that the service asked for.
func TestAPauseOutlivesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: refuseOnce(transport.Throttled)}
		c := opened(t, f, nil)
		start := time.Now()
		time.AfterFunc(2*time.Second, func() { f.last().kill <- lost(transport.Network) })
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.Equal(t, 10*time.Second, time.Since(start))
		require.Len(t, f.dialTimes(), 2)
	})
}

func TestReconnectEndsTheWaitAndIsPlannedOnALiveConnection(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Network))}
		policy := &recorder{delay: time.Hour}
		c, w := client(t, f, &device.Options{RetryPolicy: policy})
		require.ErrorIs(t, c.Reconnect(), transport.Closed)
		require.NoError(t, c.Start())
		time.Sleep(5 * time.Second)
		require.NoError(t, c.Reconnect())
		open(t, c)
		require.Equal(t, []time.Duration{5 * time.Second}, gaps(f))

		time.Sleep(time.Second)
		require.NoError(t, c.Reconnect())
		synctest.Wait()
		open(t, c)
		require.Equal(t, []time.Duration{5 * time.Second, time.Second}, gaps(f))
		require.Len(t, policy.asked, 1, "a planned replacement is no failure")
		synctest.Wait()
		require.Equal(t, []device.Reason{device.ReasonConnecting, device.ReasonAttemptFailed, device.ReasonConnecting,
			device.ReasonConnectionOK,
			device.ReasonPlanned, device.ReasonConnecting, device.ReasonConnectionOK}, w.reasons())
	})
}
