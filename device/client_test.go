package device_test

// Expectations of the official Java SDK's tests (T and a number), and more of its defects (L) and
// its users' problems (Pain). Where Hubline differs on purpose, the test says why.

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// Open while retrying. The Java SDK refuses; here a second Open joins the running attempts,
// because its caller wants a connection, no matter which caller started them.
func TestOpenWhileRetryingJoins(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Network))}
		c, _ := client(t, f, &device.Options{RetryPolicy: constant(time.Minute)})
		require.NoError(t, c.Start())
		synctest.Wait()
		require.Equal(t, device.StateDisconnectedRetrying, c.Status().State)
		start := time.Now()
		open(t, c)
		require.Equal(t, time.Minute, time.Since(start))
		require.Len(t, f.dialTimes(), 2, "no attempt more than the policy's")
	})
}

// Open while connected has no effect.
func TestOpenWhileConnectedDoesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{}
		c, w := client(t, f, nil)
		open(t, c)
		synctest.Wait()
		n := len(w.list())
		open(t, c)
		synctest.Wait()
		require.Len(t, w.list(), n)
		require.Len(t, f.dialTimes(), 1)
	})
}

// An Open that failed because retries or time ended reports that with the cause; the Java
// SDK hides the cause.
func TestOpenThatGaveUpKeepsTheCause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(int, context.Context) error { return lost(transport.Unavailable) }}
		c, _ := client(t, f, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
		err := c.Open(t.Context())
		require.ErrorIs(t, err, transport.RetryExpired)
		require.ErrorIs(t, err, transport.Unavailable)

		require.NoError(t, c.SetRetryPolicy(constant(time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		err = c.Open(ctx)
		require.ErrorIs(t, err, transport.Cancelled)
		require.ErrorIs(t, err, transport.Unavailable)
	})
}

// Close with one message waiting and one in flight: both end with Closed, the one in flight
// with unknown outcome.
func TestCloseEndsQueuedAndInFlightMessages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: hold}
		c := opened(t, f, &device.Options{Window: 1})
		var flying, queued device.Receipt
		require.NoError(t, c.Enqueue(t.Context(), msg(1), &flying))
		require.NoError(t, c.Enqueue(t.Context(), msg(2), &queued))
		synctest.Wait()
		require.NoError(t, c.Close())
		err := flying.Wait(t.Context())
		require.ErrorIs(t, err, transport.Closed)
		require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
		err = queued.Wait(t.Context())
		require.ErrorIs(t, err, transport.Closed)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown)
	})
}

// A message refused for now is resent after the policy's delay, and nothing is reported in between.
// A message refused for good fails at once. When the policy stops, the message fails with the
// cause.
func TestARefusedMessageEndsAsItsKindAndThePolicySay(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kind   transport.Kind
		policy retrypolicy.Policy
		want   error
		after  time.Duration
	}{
		{"refused for now", transport.Unavailable, constant(3 * time.Second), nil, 3 * time.Second},
		{"refused for good", transport.Invalid, constant(3 * time.Second), transport.Invalid, 0},
		{"the policy stops", transport.Unavailable, retrypolicy.NoRetry{}, transport.RetryExpired, 0},
	} {
		run(t, tc.name, func(t *testing.T) {
			f := &fake{verdict: refuseOnce(tc.kind)}
			c := opened(t, f, &device.Options{MessagePolicy: tc.policy})
			start := time.Now()
			err := c.Send(t.Context(), msg(1))
			if tc.want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, tc.want)
				require.ErrorIs(t, err, tc.kind)
			}
			require.Equal(t, tc.after, time.Since(start))
		})
	}
}

// OperationTimeout ends while the message waits for its retry: Timeout, and the policy is not
// asked again.
func TestOperationTimeoutDuringAPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		policy := &recorder{delay: time.Hour}
		f := &fake{verdict: refuse(transport.Unavailable)}
		c := opened(t, f, &device.Options{MessagePolicy: policy, OperationTimeout: time.Minute})
		start := time.Now()
		err := c.Send(t.Context(), msg(1))
		require.ErrorIs(t, err, transport.Timeout)
		require.NotErrorIs(t, err, transport.ErrOutcomeUnknown, "the service refused it: it does not have it")
		require.Equal(t, time.Minute, time.Since(start))
		require.Len(t, policy.asked, 1)
	})
}

// Refused credentials. The Java SDK retries for the whole operation time if the
// credentials can be renewed, so it tries a revoked key for minutes. Here a key signs a fresh token
// for every dial anyway, so a refused dial is final, and a token source is asked for another token
// once.
func TestRefusedCredentialsAreTriedOnceMoreAtMost(t *testing.T) {
	refusing := func(int, context.Context) error { return lost(transport.Unauthorized) }
	bubble(t, func(t *testing.T) { // a key
		f := &fake{dial: refusing}
		c, _ := client(t, f, nil)
		require.ErrorIs(t, c.Open(t.Context()), transport.Unauthorized)
		require.Len(t, f.dialTimes(), 1)
	})
	bubble(t, func(t *testing.T) { // a token source
		f := &fake{dial: refusing}
		id := creds()
		id.Token = func(context.Context) (transport.Token, error) { return transport.Token{Text: transport.Hide("t")}, nil }
		c := made(t, id, f, nil)
		require.ErrorIs(t, c.Open(t.Context()), transport.Unauthorized)
		require.Len(t, f.dialTimes(), 2)
	})
	bubble(t, func(t *testing.T) { // a source that returns the same token
		f := &fake{dial: failing(nil, lost(transport.Unauthorized))}
		id := creds()
		id.Token = func(context.Context) (transport.Token, error) {
			return transport.Token{Text: transport.Hide("t"), Fixed: true}, nil
		}
		c := made(t, id, f, nil)
		require.NoError(t, c.Open(t.Context()))
		f.last().kill <- lost(transport.Network)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, device.ReasonNotRetryable, c.Status().Reason)
		require.Len(t, f.dialTimes(), 2)
	})
}

// One table of states and reasons; every step has its own.
func TestEachStepHasItsStateAndReason(t *testing.T) {
	type step struct {
		state  device.State
		reason device.Reason
	}
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Network), nil, lost(transport.Timeout), nil, lost(transport.Unauthorized))}
		c, w := client(t, f, nil)
		require.Equal(t, device.ReasonNotOpened, c.Status().Reason)
		open(t, c)
		f.last().kill <- lost(transport.Network)
		time.Sleep(time.Minute)
		require.NoError(t, c.Reconnect())
		synctest.Wait()
		require.ErrorIs(t, c.Status().Err, transport.Unauthorized)
		require.NoError(t, c.Close())
		var got []step
		for _, s := range w.list() {
			got = append(got, step{s.State, s.Reason})
		}
		require.Equal(t, []step{
			{device.StateDisconnectedRetrying, device.ReasonConnecting},
			{device.StateDisconnectedRetrying, device.ReasonAttemptFailed},
			{device.StateDisconnectedRetrying, device.ReasonConnecting},
			{device.StateConnected, device.ReasonConnectionOK},
			{device.StateDisconnectedRetrying, device.ReasonConnectionLost},
			{device.StateDisconnectedRetrying, device.ReasonConnecting},
			{device.StateDisconnectedRetrying, device.ReasonAttemptFailed},
			{device.StateDisconnectedRetrying, device.ReasonConnecting},
			{device.StateConnected, device.ReasonConnectionOK},
			{device.StateDisconnectedRetrying, device.ReasonPlanned},
			{device.StateDisconnectedRetrying, device.ReasonConnecting},
			{device.StateDisconnected, device.ReasonNotRetryable},
			{device.StateDisconnected, device.ReasonClientClosed},
		}, got)
	})
}

// A waiting message expires at its time. The Java SDK also drops a message in flight; here it
// stays in flight, because the hub may still acknowledge it, and expires if it returns to the
// queue.
func TestAQueuedMessageExpiresInTimeAndOneInFlightLater(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{verdict: hold}
		c := opened(t, f, &device.Options{Window: 1, AckTimeout: 30 * time.Second})
		var flying, queued device.Receipt
		for i, r := range []*device.Receipt{&flying, &queued} {
			m := msg(i)
			m.Expires = time.Now().Add(10 * time.Second)
			require.NoError(t, c.Enqueue(t.Context(), m, r))
		}
		start := time.Now()
		require.ErrorIs(t, queued.Wait(t.Context()), transport.Expired)
		require.Equal(t, 10*time.Second, time.Since(start))
		err := flying.Wait(t.Context())
		require.ErrorIs(t, err, transport.Expired)
		require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.GreaterOrEqual(t, time.Since(start), 30*time.Second)
	})
}

// Without a limit the client retries for ever.
func TestWithoutALimitRetriesNeverEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		up := time.Now().Add(1000 * time.Hour)
		f := &fake{dial: func(int, context.Context) error {
			if time.Now().Before(up) {
				return lost(transport.Network)
			}
			return nil
		}}
		c, _ := client(t, f, &device.Options{OperationTimeout: -1, RetryPolicy: constant(time.Hour)})
		require.NoError(t, c.Start())
		require.NoError(t, c.Send(t.Context(), msg(1)))
	})
}

// A token that lives longer than 2^32 milliseconds is renewed in time.
func TestLongTokensAreRenewedInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const life = 60 * 24 * time.Hour
		f := &fake{expires: func() time.Time { return time.Now().Add(life) }}
		opened(t, f, nil)
		time.Sleep(life)
		require.Equal(t, []time.Duration{life / 100 * 85}, gaps(f))
	})
}

// The renewal time is a fraction of the life in any unit: 85 % of 100 s is 85 s.
func TestShortTokensAreRenewedInTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{expires: func() time.Time { return time.Now().Add(100 * time.Second) }}
		opened(t, f, nil)
		time.Sleep(200 * time.Second)
		require.Equal(t, []time.Duration{85 * time.Second, 85 * time.Second}, gaps(f))
	})
}

// Every connection subscribes again, and counts as connected only then; the client does not
// rely on the hub's memory of the session.
func TestEveryConnectionSubscribes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var on []int
		f := &fake{}
		f.subscribe = func(conn int) error { on = append(on, conn); return nil }
		c, _ := client(t, f, nil)
		c.HandleMessages(accept)
		open(t, c)
		for range 4 {
			f.last().kill <- lost(transport.Network)
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		require.Equal(t, []int{1, 2, 3, 4, 5}, on)
	})
}

// Clients that are created and closed leave no memory in use.
func TestClosedClientsLeaveNoMemory(t *testing.T) {
	cycle := func(n int) {
		for range n {
			c, err := device.New(creds(), &instant{}, nil)
			require.NoError(t, err)
			require.NoError(t, c.Open(t.Context()))
			require.NoError(t, c.Send(t.Context(), msg(1)))
			require.NoError(t, c.Close())
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	cycle(100)
	before := heap()
	cycle(10_000)
	require.Less(t, heap()-before, int64(1<<20), "a leak of 100 bytes each would be as much")
}

// Connecting alone does not reset the retry count of a flapping link.
func TestConnectingDoesNotResetTheCount(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f, c := connected(t, nil)
		start := time.Now()
		for time.Since(start) < time.Hour {
			f.last().kill <- lost(transport.Network) // at once
			synctest.Wait()
			open(t, c)
		}
		require.Less(t, len(f.dialTimes()), 380, "an hour at 10 s each, and the first few")
	})
}

// A token source that fails for a while only delays the connection; each dial asks it
// again.
func TestATokenSourceThatFailsIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		asked := 0
		id := creds()
		id.Token = func(context.Context) (transport.Token, error) {
			if asked++; asked < 4 {
				return transport.Token{}, context.DeadlineExceeded
			}
			return transport.Token{Text: transport.Hide("t")}, nil
		}
		c := made(t, id, &fake{}, nil)
		open(t, c)
		require.Equal(t, 4, asked)
		require.NoError(t, c.Reconnect())
		synctest.Wait()
		require.Equal(t, 5, asked)
	})
}

// The queue is bounded; see also the tests of the overflow rules.
func TestTheQueueIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c, _ := client(t, &fake{}, &device.Options{Overflow: device.OverflowDropOldest, MaxMessages: 100, MaxBytes: 5000})
		for i := range 10_000 {
			require.NoError(t, c.Enqueue(t.Context(), sized(strconv.Itoa(i), 5+i%90), nil))
			s := c.Stats()
			require.LessOrEqual(t, s.Queued, 100)
			require.LessOrEqual(t, s.QueuedBytes, 5000)
		}
		s := c.Stats()
		require.Equal(t, s.Accepted, s.Dropped+uint64(s.Queued))
	})
}

// OperationTimeout has the same meaning in every state.
func TestOperationTimeoutHoldsInEveryState(t *testing.T) {
	for name, f := range map[string]*fake{
		"connecting": {dial: hang},
		"waiting":    {dial: down},
		"connected":  {verdict: hold},
		"paused":     {verdict: refuse(transport.Throttled)},
	} {
		run(t, name, func(t *testing.T) {
			c, _ := client(t, f, &device.Options{OperationTimeout: 77 * time.Second, AckTimeout: time.Hour})
			require.NoError(t, c.Start())
			synctest.Wait()
			start := time.Now()
			require.ErrorIs(t, c.Send(context.Background(), msg(1)), transport.Timeout)
			require.Equal(t, 77*time.Second, time.Since(start))
		})
	}
}

// The first connection is retried like any other, a terminal failure is not, and a client
// without retries can connect.
func TestOpenRetriesOnlyRetryableFailures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Network), lost(transport.Unavailable), lost(transport.Timeout))}
		opened(t, f, nil)
		require.Len(t, f.dialTimes(), 4)
	})
	bubble(t, func(t *testing.T) {
		f := &fake{dial: failing(lost(transport.Untrusted))}
		c, _ := client(t, f, nil)
		require.ErrorIs(t, c.Open(t.Context()), transport.Untrusted)
		require.Len(t, f.dialTimes(), 1)
	})
	bubble(t, func(t *testing.T) {
		opened(t, &fake{}, &device.Options{RetryPolicy: retrypolicy.NoRetry{}})
	})
}

// Connections and messages have separate policies.
func TestConnectionsAndMessagesHaveAPolicyEach(t *testing.T) {
	bubble(t, func(t *testing.T) {
		connections, messages := &recorder{delay: time.Second}, &recorder{delay: 2 * time.Second}
		first := true
		f := &fake{dial: failing(lost(transport.Network)), verdict: func(int, transport.Item) error {
			if first {
				first = false
				return refused(transport.Unavailable)
			}
			return nil
		}}
		c := opened(t, f, &device.Options{RetryPolicy: connections, MessagePolicy: messages})
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.Len(t, connections.asked, 1)
		require.Len(t, messages.asked, 1)
		require.Equal(t, transport.ScopeConnection, connections.asked[0].Scope)
		require.Equal(t, transport.ScopeOperation, messages.asked[0].Scope)
	})
}

// The delays are capped, and the status reports each of them.
func TestDelaysAreCappedAndReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: down}
		c, w := client(t, f, nil)
		require.NoError(t, c.Start())
		time.Sleep(24 * time.Hour)
		for _, s := range w.list() {
			require.LessOrEqual(t, s.Delay, 10*time.Second)
		}
		for i, g := range gaps(f)[8:] {
			require.Equal(t, 10*time.Second, g, "retry %d", i+9)
		}
	})
}
