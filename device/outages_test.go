package device_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/transport"
)

// Each refusal of the credentials after a good connection gets one retry with a fresh token, after
// any number of earlier refusals.
func TestEachExpiredTokenGetsItsFreshOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, c := connected(t, nil)
		for range 3 {
			time.Sleep(30 * 24 * time.Hour)
			f.lose(transport.Unauthorized, time.Minute)
			require.Equal(t, device.StateConnected, c.Status().State)
		}
		require.Len(t, f.dialTimes(), 4)
	})
}

// OutageLimit counts from the loss of a connection, also of an unstable one.
func TestOutageLimitCountsFromTheLatestLoss(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(n int, _ context.Context) error {
			if n == 6 {
				return nil
			}
			return lost(transport.Network)
		}}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(10 * time.Second), OutageLimit: time.Minute})
		start := time.Now()
		open(t, c) // after 50 s
		time.Sleep(time.Second)
		f.lose(transport.Network, time.Hour)
		require.Equal(t, device.StateDisconnected, c.Status().State)
		dials := f.dialTimes()
		require.Equal(t, 111*time.Second, dials[len(dials)-1].Sub(start), "the last attempt: a minute after the loss")
		require.Equal(t, time.Minute, c.Stats().LongestOutage)
	})
}

// After TryAgainAfter everything starts again from scratch: the count of retries, the policy's
// state, the start of the outage, and the one retry with a fresh token.
func TestTryAgainAfterBeginsAnew(t *testing.T) {
	run(t, "count and memory of the policy", func(t *testing.T) {
		p := &counting{max: 3}
		c := started(t, &fake{dial: down}, &device.Options{RetryPolicy: p, TryAgainAfter: time.Hour})
		time.Sleep(2*time.Hour + time.Minute)
		require.NoError(t, c.Close())
		require.Equal(t, []int{1, 2, 3, 1, 2, 3, 1, 2, 3}, p.retries)
		require.Equal(t, []time.Duration{0, second, 2 * second, 0, second, 2 * second, 0, second, 2 * second}, p.last)
	})
	run(t, "start of the outage", func(t *testing.T) {
		f := &fake{dial: down}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(3 * time.Second), OutageLimit: 7 * time.Second,
			TryAgainAfter: time.Hour})
		require.NoError(t, c.Start())
		time.Sleep(2*time.Hour + time.Minute)
		require.NoError(t, c.Close())
		require.Equal(t, []time.Duration{3 * time.Second, 3 * time.Second, time.Hour, 3 * time.Second, 3 * time.Second,
			time.Hour, 3 * time.Second, 3 * time.Second}, gaps(f))
	})
	run(t, "fresh token", func(t *testing.T) {
		f := &fake{dial: func(int, context.Context) error { return lost(transport.Unauthorized) }}
		cr := creds()
		cr.Token = func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide("t"), Expires: time.Now().Add(time.Hour)}, nil
		}
		c := made(t, cr, f, &device.Options{TryAgainAfter: time.Hour})
		require.NoError(t, c.Start())
		time.Sleep(time.Hour + time.Minute)
		require.Equal(t, []time.Duration{0, time.Hour, 0}, gaps(f), "two attempts each time")
	})
}

const second = time.Second

// counting is a policy that stops at retry number max. It records its calls.
type counting struct {
	max     int
	retries []int
	last    []time.Duration // delays of the previous decisions of the series
}

func (p *counting) Decide(retrypolicy.Attempt) retrypolicy.Decision { panic("not in a series") }

func (p *counting) Begin(retrypolicy.Start) retrypolicy.Series { return &countingSeries{counting: p} }

type countingSeries struct {
	retrypolicy.Free
	*counting
	delay time.Duration
}

func (s *countingSeries) Decide(a retrypolicy.Attempt) retrypolicy.Decision {
	s.retries, s.last = append(s.retries, a.Retry), append(s.last, s.delay)
	d := retrypolicy.Decision{Retry: a.Retry < s.max, Delay: time.Duration(a.Retry) * second}
	s.delay = d.Delay
	return d
}

// A jump of the clock ends the wait after a lost connection, but not a delay that the service asked
// for. What the policy adds to that is ended.
func TestAClockJumpDoesNotShortenADelayOfTheService(t *testing.T) {
	asked := func(d time.Duration) error { return &transport.Error{Kind: transport.Unavailable, RetryAfter: d} }
	for failure, want := range map[error]time.Duration{
		lost(transport.Network): 90 * time.Second, lost(transport.Throttled): time.Hour, lost(transport.Quota): time.Hour,
		asked(time.Hour): time.Hour, asked(time.Second): 90 * time.Second, asked(10 * time.Minute): 10 * time.Minute,
	} {
		run(t, failure.Error(), func(t *testing.T) {
			f := &fake{dial: failing(failure)}
			c, k, _ := skewedClient(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
			require.NoError(t, c.Start())
			time.Sleep(70 * time.Second)
			k.move(time.Minute)
			time.Sleep(2 * time.Hour)
			require.Equal(t, []time.Duration{want}, gaps(f))
		})
	}
}

// A new policy is asked with the time at which it is asked: a budget that others use as well takes
// an older one for a clock that was set back.
func TestANewPolicyIsAskedWithTheTimeOfTheQuestion(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Network))}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
		require.NoError(t, c.Start())
		time.Sleep(10 * time.Minute)
		breaker, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 1, Wait: true})
		require.NoError(t, err)
		other := retrypolicy.Begin(breaker.Wrap(constant(time.Minute)), "", time.Now())
		_, _ = other.Admit(time.Now(), 0)
		_, _ = other.Failure(time.Now(), 0, retrypolicy.OfKind(transport.Network), transport.Network)
		require.NoError(t, c.SetRetryPolicy(breaker.Wrap(constant(time.Hour))))
		synctest.Wait()
		require.Equal(t, 30*time.Second, breaker.Status(time.Now()).Cooldown, "it has just opened")
	})
}

// A new policy is asked about twin calls that wait for their retry.
func TestANewPolicyIsAskedAboutATwinCallThatWaitsForItsRetry(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := refusingTwin(1, transport.Unavailable)
		c := opened(t, f, &device.Options{RetryPolicy: constant(time.Hour)})
		read := make(chan error, 1)
		start := time.Now()
		go func() { _, err := c.GetTwin(t.Context()); read <- err }()
		time.Sleep(10 * time.Second)
		require.NoError(t, c.SetRetryPolicy(constant(15*time.Second)))
		require.NoError(t, <-read)
		require.Equal(t, 15*time.Second, time.Since(start), "from the refusal on")
	})
}

// A twin call whose caller gives up while the policy is asked about it has one end.
func TestACallerGivesUpWhileThePolicyIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		gone := make(chan error, 1)
		f := &fake{request: refusing(transport.Unavailable)}
		policy := retrypolicy.Func(func(int, error) (bool, time.Duration) {
			cancel()
			time.Sleep(time.Second) // the caller returns meanwhile
			return false, 0
		})
		// A client that hangs cannot be closed, so it is closed at the end of the test instead of by
		// Cleanup.
		c, err := device.New(creds(), f, &device.Options{RetryPolicy: constant(time.Second), MessagePolicy: policy})
		require.NoError(t, err)
		open(t, c)
		go func() { _, err := c.GetTwin(ctx); gone <- err }()
		require.ErrorIs(t, <-gone, context.Canceled)
		time.Sleep(10 * time.Second)

		short, end := context.WithTimeout(t.Context(), time.Minute)
		defer end()
		require.NoError(t, c.Send(short, msg(1)), "the client goes on")
		require.NoError(t, c.Close())
	})
}

// OutageLimit also applies to a delay of the longest duration.
func TestOutageLimitBearsAHugeDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(int, context.Context) error { time.Sleep(time.Second); return lost(transport.Network) }}
		c := started(t, f, &device.Options{RetryPolicy: constant(math.MaxInt64), OutageLimit: time.Minute})
		time.Sleep(time.Hour)
		require.Equal(t, device.ReasonRetryExpired, c.Status().Reason)
	})
}

// LastError covers connections and attempts, not messages.
func TestLastErrorIsOfConnectionsOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: refuseOnce(transport.Throttled)}
		c := opened(t, f, nil)
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.NoError(t, c.Stats().LastError, "no connection or attempt failed")
	})
}

// A policy that returns the longest duration makes the client wait that long, with or without
// spread.
func TestSpreadBearsAHugeDelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(n int, ctx context.Context) error {
			if n > 100 {
				<-ctx.Done()
				return ctx.Err()
			}
			return lost(transport.Network)
		}}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(math.MaxInt64),
			ReconnectSpread: time.Minute, Rand: func() uint64 { return 12345678 }})
		require.NoError(t, c.Start())
		time.Sleep(time.Second)
		require.Len(t, f.dialTimes(), 1)
	})
}
