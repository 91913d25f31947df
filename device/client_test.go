package device_test

// Expectations of the official Java SDK's tests (T and a number), and more of its defects (L) and
// its users' problems (Pain). Where Hubline differs on purpose, the test says why.

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// Open while connected has no effect.
func TestOpenWhileConnectedDoesNothing(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		c, w := client(t, f, nil)
		open(t, c)
		synctest.Wait()
		n := len(w.list())
		open(t, c)
		require.NoError(t, c.Start())
		synctest.Wait()
		require.Len(t, w.list(), n)
		require.Len(t, f.dialTimes(), 1)
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
		f.lose(transport.Network, time.Minute)
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
		f.lose(transport.Network, time.Minute)
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
	cycle(100)
	require.Less(t, heapGrowth(func() { cycle(10_000) }), int64(1<<20), "a leak of 100 bytes each would be as much")
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
			c := started(t, f, &device.Options{OperationTimeout: 77 * time.Second, AckTimeout: time.Hour})
			synctest.Wait()
			start := time.Now()
			require.ErrorIs(t, c.Send(context.Background(), msg(1)), transport.Timeout)
			require.Equal(t, 77*time.Second, time.Since(start))
		})
	}
}
