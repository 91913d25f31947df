package device_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// A connection that makes progress is kept even if the oldest message has waited longer than
// AckTimeout. A connection without progress is cut AckTimeout after its last progress.
func TestAnAnswerIsDueSinceTheLastProgress(t *testing.T) {
	for _, row := range []struct {
		name   string
		moving time.Duration // how long the connection makes progress, in steps of a second
		cut    time.Duration // when it is cut
	}{
		{"never", 0, 30 * time.Second},
		{"for a moment", 2 * time.Second, 32 * time.Second},
		{"for longer than AckTimeout", 100 * time.Second, 130 * time.Second},
	} {
		run(t, row.name, func(t *testing.T) {
			var began time.Time
			f := &fake{verdict: hold}
			f.progress = func() time.Time {
				if began.IsZero() || row.moving == 0 {
					return time.Time{}
				}
				return began.Add(min(time.Since(began).Truncate(time.Second), row.moving))
			}
			lost := make(chan time.Time, 10)
			c := opened(t, f, &device.Options{RetryPolicy: constant(time.Hour), OnStatus: func(s device.Status) {
				if s.Reason == device.ReasonConnectionLost {
					lost <- time.Now()
				}
			}})
			time.Sleep(time.Minute)
			began = time.Now()
			require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
			time.Sleep(200 * time.Second)
			require.Len(t, lost, 1)
			require.Equal(t, row.cut, (<-lost).Sub(began))
		})
	}
}

// successes counts the connections that are reported to a policy as successful.
type successes struct{ good, bad int }

func (p *successes) report(v retrypolicy.Verdict, a retrypolicy.Attempt) {
	switch {
	case a.Scope != transport.ScopeConnection:
	case v == retrypolicy.VerdictSucceed:
		p.good++
	default:
		p.bad++
	}
}

// A hub that accepts connections and answers nothing causes a failure each time, however long
// AckTimeout keeps the connection: the delays grow, and no success is reported to the policy.
func TestAConnectionThatAnswersNothingIsNotStable(t *testing.T) {
	for _, ack := range []time.Duration{30 * time.Second, 2 * time.Minute} {
		bubble(t, func(t *testing.T) {
			f := &fake{verdict: hold}
			p := &successes{}
			policy := hooked{Policy: retrypolicy.ExponentialBackoffWithJitter{}, report: p.report}
			var delays []time.Duration
			c, _ := client(t, f, &device.Options{AckTimeout: ack, RetryPolicy: policy, OnStatus: func(s device.Status) {
				if s.Reason == device.ReasonConnectionLost {
					delays = append(delays, s.Delay)
				}
			}})
			require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
			open(t, c)
			time.Sleep(10 * (ack + 10*time.Second))
			synctest.Wait()
			require.GreaterOrEqual(t, len(delays), 10)
			require.Equal(t, 10*time.Second, delays[9], "%v", delays)
			require.Zero(t, p.good)
			require.Equal(t, len(delays), p.bad)
		})
	}
}

// The connection to a hub that answers for StableTime and then goes silent was stable.
func TestAConnectionIsStableUntilAnAnswerIsDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var began time.Time
		f := &fake{verdict: func(int, transport.Item) error {
			if time.Since(began) >= 40*time.Second {
				return errHold
			}
			return nil
		}}
		var retries []int
		c, _ := client(t, f, &device.Options{OnStatus: func(s device.Status) {
			if s.Reason == device.ReasonConnectionLost {
				retries = append(retries, s.Retry)
				began = time.Now()
			}
		}})
		began = time.Now()
		open(t, c)
		for range 300 {
			require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
			time.Sleep(time.Second)
		}
		require.GreaterOrEqual(t, len(retries), 3)
		for _, n := range retries {
			require.Equal(t, 1, n, "%v", retries)
		}
	})
}
