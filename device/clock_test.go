package device_test

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

// When two time servers differ by 10 s, or the clock runs fast, the client reconnects at most twice
// a minute, even if it is busy.
func TestAClockThatSwingsDoesNotReconnectAllTheTime(t *testing.T) {
	for name, clock := range map[string]func(calls int, passed time.Duration) time.Duration{
		"swings between two machines": func(calls int, _ time.Duration) time.Duration {
			return time.Duration(calls%2) * 10 * time.Second
		},
		"runs a thousand times as fast": func(_ int, passed time.Duration) time.Duration { return 1000 * passed },
	} {
		for when, f := range map[string]*fake{
			"connected":     {},
			"without a hub": {dial: down},
		} {
			run(t, name+"/"+when, func(t *testing.T) {
				calls, start := 0, time.Now()
				id := creds()
				id.Now = func() time.Time {
					calls++
					return time.Now().Add(clock(calls, time.Since(start)))
				}
				c, err := device.New(id, f,
					&device.Options{StableTime: time.Second, RetryPolicy: constant(time.Minute), Rand: func() uint64 { return 0 }})
				require.NoError(t, err)
				defer c.Close()
				require.NoError(t, c.Start())
				for range 3600 {
					time.Sleep(time.Second)
					_ = c.Enqueue(t.Context(), msg(1), nil)
				}
				require.LessOrEqual(t, len(f.dialTimes()), 121, "an hour")
			})
		}
	}
}

// A connection that ends because of a clock jump is lost like any other: the policy is asked, and
// may stop the retries.
func TestAClockJumpAsksThePolicy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		policy := &recorder{delay: 7 * time.Second}
		f := &fake{}
		c, k, w := skewedClient(t, f, &device.Options{RetryPolicy: policy})
		open(t, c)
		time.Sleep(time.Hour)
		k.move(time.Hour)
		time.Sleep(time.Minute)
		require.Equal(t, device.StateConnected, c.Status().State)
		require.Len(t, policy.asked, 1)
		require.Equal(t, transport.Network, policy.asked[0].Kind)
		require.Equal(t, 1, policy.asked[0].Retry)
		told := w.list()[2]
		require.Equal(t, device.ReasonClockJumped, told.Reason)
		require.Equal(t, 7*time.Second, told.Delay)
	})
	bubble(t, func(t *testing.T) {
		c, k, _ := skewedClient(t, &fake{}, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		open(t, c)
		k.move(time.Hour)
		time.Sleep(time.Minute)
		require.Equal(t, device.ReasonRetryExpired, c.Status().Reason)
	})
}

// The rest of a jump that came too soon after another one counts when 30 s are over.
func TestASecondJumpSoonAfterTheFirstIsNotForgotten(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, k, _ := skewedClient(t, f, &device.Options{})
		open(t, c)
		time.Sleep(time.Hour)
		k.move(time.Hour)
		time.Sleep(31 * time.Second)
		require.Len(t, f.dialTimes(), 2)
		time.Sleep(time.Second)
		k.move(time.Hour)
		time.Sleep(61 * time.Second)
		require.Len(t, f.dialTimes(), 3)
	})
}

// signing returns credentials with a key, whose clock is behind by late until it is set, and a dial
// function of a hub that accepts only tokens signed by a correct clock.
func signing(t *testing.T, late time.Duration) (*transport.Credentials, *skewed, func(int, context.Context) error) {
	t.Helper()
	sign, err := transport.SharedKey("c2VjcmV0LWtleS1vZi10aGUtZGV2aWNl")
	require.NoError(t, err)
	k := &skewed{by: -late}
	id := creds()
	id.Sign, id.Now = sign, k.now
	return id, k, func(_ int, ctx context.Context) error {
		token, err := id.NewToken(ctx)
		if err != nil {
			return err
		}
		time.Sleep(time.Second) // the handshake
		if token.Expires.Before(time.Now()) {
			return lost(transport.Unauthorized)
		}
		return nil
	}
}

// A clock chip without battery starts in 2000, and a system without such a chip at the build time
// of its image. A token of that time that is refused does not mean a wrong key: the client waits
// until the clock is set.
func TestARefusedTokenOfAnUnsetClockIsNotFinal(t *testing.T) {
	for name, row := range map[string]struct {
		late     time.Duration
		earliest time.Duration // before now
	}{
		"1970":                   {60 * 365 * 24 * time.Hour, 0},
		"2000":                   {30 * 365 * 24 * time.Hour, 0},
		"the image's build time": {90 * 24 * time.Hour, 89 * 24 * time.Hour},
	} {
		run(t, name, func(t *testing.T) {
			testkit.StartClock()
			id, k, dial := signing(t, row.late)
			if row.earliest > 0 {
				id.Earliest = time.Now().Add(-row.earliest)
			}
			f := &fake{dial: dial}
			c := made(t, id, f, nil)
			require.NoError(t, c.Start())
			time.Sleep(10 * time.Minute)
			require.Equal(t, device.StateDisconnectedRetrying, c.Status().State, "%v", c.Status().Err)
			require.ErrorIs(t, c.Status().Err, transport.ClockUnset)
			require.Less(t, len(f.dialTimes()), 20, "slowly")
			k.move(row.late)
			set := time.Now()
			open(t, c)
			require.LessOrEqual(t, time.Since(set), 32*time.Second, "the step ends the wait")
		})
	}
}

// The clock is set while a token signed before is in flight: the refusal is about the old time.
func TestAClockThatIsSetDuringAnAttempt(t *testing.T) {
	for name, late := range map[string]time.Duration{"from 2000": 30 * 365 * 24 * time.Hour,
		"from a plausible time": 90 * 24 * time.Hour} {
		run(t, name, func(t *testing.T) {
			testkit.StartClock()
			id, k, dial := signing(t, late)
			c := made(t, id, &fake{dial: dial}, nil)
			require.NoError(t, c.Start())
			time.Sleep(500 * ms)
			k.move(late)
			open(t, c)
		})
	}
}

// The clock is set twice within 30 s, the second time during an attempt.
func TestAClockThatIsSetInTwoSteps(t *testing.T) {
	bubble(t, func(t *testing.T) {
		testkit.StartClock()
		const late = 90 * 24 * time.Hour
		id, k, dial := signing(t, late)
		f := &fake{dial: func(n int, ctx context.Context) error {
			if n == 1 {
				time.Sleep(time.Second)
				return lost(transport.Network)
			}
			return dial(n, ctx)
		}}
		c := made(t, id, f, &device.Options{RetryPolicy: constant(time.Second)})
		require.NoError(t, c.Start())
		time.Sleep(500 * ms)
		k.move(time.Hour)
		for len(f.dialTimes()) < 2 {
			time.Sleep(100 * ms)
		}
		time.Sleep(500 * ms)
		k.move(late - time.Hour)
		open(t, c)
	})
}

// A refusal is final if the clock may be right, or if the identity signs nothing.
func TestARefusalByAPlausibleClockIsFinal(t *testing.T) {
	for name, key := range map[string]bool{"key": true, "certificate": false} {
		run(t, name, func(t *testing.T) {
			id, _, _ := signing(t, 0)
			if key {
				testkit.StartClock()
			} else {
				id.Sign = nil
			}
			c := made(t, id, &fake{dial: failing(lost(transport.Unauthorized))}, nil)
			require.ErrorIs(t, c.Open(t.Context()), transport.Unauthorized)
			synctest.Wait()
			require.Equal(t, device.ReasonNotRetryable, c.Status().Reason)
		})
	}
}

// The longest durations stand for no limit. The sum of two of them must not overflow, so the client
// rests.
func TestTheLongestTryAgainAfterWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(n int, _ context.Context) error {
			if n == 100 {
				panic("the client does not rest: 100 dials")
			}
			return lost(transport.Unauthorized)
		}}
		c, _ := client(t, f, &device.Options{TryAgainAfter: math.MaxInt64,
			ReconnectSpread: math.MaxInt64, Rand: func() uint64 { return math.MaxInt64 - 1 }})
		require.NoError(t, c.Start())
		time.Sleep(24 * time.Hour)
		require.Len(t, f.dialTimes(), 1)
	})
}
