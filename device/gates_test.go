package device_test

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/retrypolicy/budget"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// spinGuard returns credentials whose clock panics when a loop spins.
func spinGuard() *transport.Credentials {
	reads := atomic.Int64{}
	cr := creds()
	cr.Now = func() time.Time {
		if reads.Add(1) == 100000 {
			panic("loop spins: 100000 looks at the clock")
		}
		return time.Now()
	}
	return cr
}

// holdSecond is a gate that delays the second attempt by d.
func holdSecond(d time.Duration) func(retrypolicy.Attempt) retrypolicy.Decision {
	n := 0
	return func(retrypolicy.Attempt) retrypolicy.Decision {
		if n++; n == 2 {
			return retrypolicy.Decision{Retry: true, Delay: d}
		}
		return retrypolicy.Decision{Retry: true}
	}
}

// A hold that ends while the session drains must not make the loop spin.
func TestAHoldThatEndsWhileTheSessionDrainsDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		start := time.Now()
		f := &fake{}
		f.expires = func() time.Time { return start.Add(100 * time.Second) }
		f.verdict = hold
		w := newWitness(retrypolicy.Fixed{Delay: time.Second})
		w.admit = holdSecond(10 * time.Second)
		c := made(t, spinGuard(), f, &device.Options{Rand: func() uint64 { return 0 }, MessagePolicy: w})
		open(t, c)
		time.Sleep(76 * time.Second)
		enqueue(t, c, 1, 2)
		time.Sleep(20 * time.Second)
	})
}

// The cost of a retry is given back once, also when Reconnect is called within StableTime.
func TestACostIsGivenBackOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, err := budget.NewTokenBucket(100, 0, 0)
		require.NoError(t, err)
		q, err := budget.NewQuota(&budget.QuotaOptions{Bucket: b, Retry: 5})
		require.NoError(t, err)
		f := &fake{dial: failing(lost(transport.Network), lost(transport.Network), lost(transport.Network),
			lost(transport.Network))}
		c := opened(t, f, &device.Options{RetryPolicy: q.Wrap(retrypolicy.Fixed{Delay: time.Second}),
			MessagePolicy: retrypolicy.NoRetry{}})
		require.Equal(t, 80, b.Tokens(time.Now()))
		for range 4 {
			require.NoError(t, c.Reconnect())
			time.Sleep(2 * time.Second)
		}
		require.NoError(t, c.Close())
		require.Equal(t, 85, b.Tokens(time.Now()), "only the cost of the last retry comes back, once")
	})
}

// Close during a probe must not close a shared breaker.
func TestAProbeThatCloseCutsShortIsNoSuccess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		br, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 1, Cooldown: 10 * time.Second, Wait: true})
		require.NoError(t, err)
		f := &fake{dial: func(n int, ctx context.Context) error {
			if n == 1 {
				return lost(transport.Network)
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		c, _ := client(t, f, &device.Options{RetryPolicy: br.Wrap(retrypolicy.Fixed{Delay: time.Second}),
			MessagePolicy: retrypolicy.NoRetry{}})
		require.NoError(t, c.Start())
		time.Sleep(15 * time.Second) // the probe is dialing
		require.Equal(t, budget.BreakerHalfOpen, br.Status(time.Now()).State)
		require.NoError(t, c.Close())
		require.NotEqual(t, budget.BreakerClosed, br.Status(time.Now()).State,
			"a probe that Close cut short is no success")
	})
}

// A gate may delay a connection although the latest one was good.
func TestAFailureThatIsOverIsNotShownAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var wait time.Duration
		p := hooked{Policy: retrypolicy.Fixed{Delay: time.Second}, admit: func(retrypolicy.Attempt) retrypolicy.Decision {
			return retrypolicy.Decision{Retry: true, Delay: wait}
		}}
		c, w := client(t, &fake{dial: failing(lost(transport.Network))}, &device.Options{RetryPolicy: p})
		open(t, c)
		time.Sleep(time.Hour)
		wait = time.Minute
		require.NoError(t, c.Reconnect())
		time.Sleep(time.Second)
		all := w.list()
		require.Equal(t, device.ReasonHeld, all[len(all)-1].Reason)
		require.NoError(t, all[len(all)-1].Err)
	})
}

// A message that the policy refuses before it is sent again was not sent again.
func TestARefusedRetryIsNotCountedAsResent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := hooked{Policy: retrypolicy.Fixed{Delay: time.Second}, admit: func(a retrypolicy.Attempt) retrypolicy.Decision {
			return retrypolicy.Decision{Retry: a.Retry == 0}
		}}
		c := opened(t, &fake{verdict: refuse(transport.Unavailable)}, &device.Options{MessagePolicy: p})
		require.ErrorIs(t, c.Send(t.Context(), msg(1)), transport.RetryExpired)
		require.Zero(t, c.Stats().Resent)
		require.EqualValues(t, 1, c.Stats().Refused)
	})
}

// Messages in flight when their policy is replaced are not successes for a breaker.
func TestAMessageOfAReplacedPolicyIsNoSuccess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		br, err := budget.NewBreaker(&budget.BreakerOptions{Failures: 1, Cooldown: 10 * time.Second, Wait: true})
		require.NoError(t, err)
		n := 0
		f := &fake{verdict: func(int, transport.Item) error {
			if n++; n == 1 {
				return refused(transport.Unavailable)
			}
			return errHold
		}}
		c := opened(t, f, &device.Options{RetryPolicy: retrypolicy.Immediately{},
			MessagePolicy: br.Wrap(retrypolicy.Fixed{Delay: time.Second})})
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		time.Sleep(15 * time.Second)
		require.Equal(t, budget.BreakerHalfOpen, br.Status(time.Now()).State)
		require.NoError(t, c.SetMessagePolicy(retrypolicy.Immediately{}))
		synctest.Wait()
		require.NotEqual(t, budget.BreakerClosed, br.Status(time.Now()).State)
	})
}

// A retry in flight at the end of its session must not leak from a ConcurrencyBudget.
func TestARetryInFlightWithItsSessionIsReportedAsOne(t *testing.T) {
	bubble(t, func(t *testing.T) {
		cb, err := budget.NewConcurrencyBudget(nil)
		require.NoError(t, err)
		p := cb.Wrap(retrypolicy.Fixed{Delay: time.Second})
		for range 5 { // tries of other clients
			require.True(t, retrypolicy.Inner(p, retrypolicy.Start{}).Admit(retrypolicy.Attempt{}).Retry)
		}
		tries := 0
		f := &fake{verdict: func(conn int, it transport.Item) error {
			tries++
			switch {
			case conn == 1 && tries == 1:
				return refused(transport.Unavailable)
			case conn == 1:
				return errHold
			}
			return nil
		}}
		c := opened(t, f, &device.Options{MessagePolicy: p})
		require.NoError(t, c.Enqueue(t.Context(), msg(1), nil))
		time.Sleep(1500 * time.Millisecond)
		all, retries := cb.Counts()
		require.Equal(t, []int{6, 1}, []int{all, retries})
		f.last().kill <- lost(transport.Network)
		require.NoError(t, c.Flush(t.Context()))
		time.Sleep(time.Minute)
		all, retries = cb.Counts()
		require.Equal(t, []int{5, 0}, []int{all, retries}, "nothing of ours is in flight")
	})
}

// acker calls once while it is told how a message ended.
type acker struct {
	*witness
	once func()
}

func (a *acker) Begin(start retrypolicy.Start) retrypolicy.Series {
	return &ackerSeries{a.witness.Begin(start), a}
}

type ackerSeries struct {
	retrypolicy.Series
	a *acker
}

func (s *ackerSeries) Report(v retrypolicy.Verdict, x retrypolicy.Attempt) {
	s.Series.Report(v, x)
	if f := s.a.once; f != nil && x.Scope == transport.ScopeOperation {
		s.a.once = nil
		f()
	}
}

func TestNoOutcomeIsLostWhenThePolicyIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: hold}
		old := &acker{witness: newWitness(retrypolicy.Immediately{})}
		var c *device.Client
		entered, gone := make(chan struct{}), make(chan struct{})
		c, _ = client(t, f, &device.Options{RetryPolicy: retrypolicy.Immediately{}, MessagePolicy: old})
		open(t, c)
		enqueue(t, c, 0, 2)
		synctest.Wait()
		// While the loop reports the end of message 0, the policy is replaced and message 1 is
		// acknowledged. Message 2 is acknowledged while the end of message 1 is reported.
		old.once = func() {
			close(entered)
			<-gone
			old.once = func() { f.last().cfg.Sink.Done(2, nil) }
		}
		f.last().cfg.Sink.Done(0, nil)
		<-entered
		f.last().cfg.Sink.Done(1, nil)
		require.NoError(t, c.SetMessagePolicy(retrypolicy.Immediately{}))
		close(gone)
		synctest.Wait()
		old.balanced(t)
	})
}

// OutageLimit applies to a wait at a gate.
func TestOutageLimitBoundsTheWaitAtAGate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: down}
		w := newWitness(retrypolicy.Fixed{Delay: time.Second})
		w.admit = func(a retrypolicy.Attempt) retrypolicy.Decision {
			if a.Retry == 0 {
				return retrypolicy.Decision{Retry: true}
			}
			return retrypolicy.Decision{Retry: true, Delay: time.Hour}
		}
		c, _ := client(t, f, &device.Options{RetryPolicy: w, MessagePolicy: retrypolicy.NoRetry{}, OutageLimit: time.Minute})
		ctx := within(t, 24*time.Hour)
		began := time.Now()
		err := c.Open(ctx)
		require.ErrorIs(t, err, transport.RetryExpired)
		require.LessOrEqual(t, time.Since(began), time.Minute)
	})
}

// Decide is asked about a refused message while a gate holds others.
func TestARefusalIsDecidedWhileAGateHolds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: hold}
		w := newWitness(retrypolicy.MaxAttempts{Total: 1, Policy: retrypolicy.Immediately{}})
		w.admit = holdSecond(time.Hour)
		c := opened(t, f, &device.Options{RetryPolicy: retrypolicy.Immediately{}, MessagePolicy: w})
		r := pending(t, c, msg(1))
		require.NoError(t, c.Enqueue(t.Context(), msg(2), nil))
		synctest.Wait()
		f.last().cfg.Sink.Done(0, refused(transport.Unavailable))
		began := time.Now()
		err := r.Wait(t.Context())
		require.ErrorIs(t, err, transport.RetryExpired)
		require.Less(t, time.Since(began), time.Minute, "the policy stops; the message has to fail now")
	})
}

// A hub's second answer arrives between take and the gate's decision.
func TestASecondAnswerMeetsAMessageAtTheGate(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		w := newWitness(retrypolicy.Fixed{Delay: time.Second})
		n := 0
		var c *device.Client
		w.admit = func(a retrypolicy.Attempt) retrypolicy.Decision {
			if n++; n == 1 {
				f.last().cfg.Sink.Done(0, nil) // a second answer to an old message with the tag
				return retrypolicy.Decision{Retry: true, Delay: time.Second}
			}
			return retrypolicy.Decision{Retry: true}
		}
		c, _ = client(t, f, &device.Options{RetryPolicy: retrypolicy.Immediately{}, MessagePolicy: w})
		open(t, c)
		enqueue(t, c, 1, 2)
		require.NoError(t, c.Flush(t.Context()))
	})
}

// A pause that ends while the gate still holds messages must not make the loop spin.
func TestAPauseThatEndsWhileAGateHoldsDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: hold}
		w := newWitness(retrypolicy.Fixed{Delay: time.Second})
		w.admit = holdSecond(time.Minute)
		c := made(t, spinGuard(), f, &device.Options{RetryPolicy: retrypolicy.Fixed{Delay: time.Second}, MessagePolicy: w})
		open(t, c)
		enqueue(t, c, 1, 2)
		synctest.Wait()
		f.last().cfg.Sink.Done(0, refused(transport.Unavailable))
		f.lose(transport.Network, 30*time.Second)
	})
}

// Clients that wait at one gate do not all dial at once when it opens.
func TestClientsThatWaitAtOneGateSpread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		br, _ := budget.NewBreaker(&budget.BreakerOptions{Wait: true})
		up := atomic.Bool{}
		var fs []*fake
		start := time.Now()
		for i := range 200 {
			f := &fake{dial: func(int, context.Context) error {
				if !up.Load() {
					return lost(transport.Network)
				}
				return nil
			}}
			fs = append(fs, f)
			c, err := device.New(creds(), f, &device.Options{RetryPolicy: br.Wrap(retrypolicy.ExponentialBackoffWithJitter{}),
				MessagePolicy: retrypolicy.Immediately{}, ReconnectSpread: 20 * time.Second, Rand: rand.NewPCG(uint64(i),
					1).Uint64})
			require.NoError(t, err)
			defer c.Close()
			require.NoError(t, c.Start())
		}
		time.Sleep(5 * time.Minute)
		up.Store(true)
		time.Sleep(5 * time.Minute)
		per := map[time.Duration]int{}
		for _, f := range fs {
			for _, d := range f.dialTimes() {
				per[d.Sub(start).Truncate(100*time.Millisecond)]++
			}
		}
		for at, n := range per {
			if at > time.Minute {
				require.LessOrEqual(t, n, 40, "so many of 200 dialed within 100 ms, %v after the start", at)
			}
		}
	})
}
