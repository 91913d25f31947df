package device_test

// Tests for the twin and direct methods: expectations of the SDKs' own tests (T and a number),
// defects of the Java SDK (L and a number) and problems of users (Pain and a number).

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// The error of a call says that a try may have been taken, even if a later try was refused.
func TestARefusalDoesNotHideAnUnknownOutcome(t *testing.T) {
	for name, row := range map[string]struct {
		policy retrypolicy.Policy
		later  transport.Kind
		want   transport.Kind
	}{
		"refused for good": {nil, transport.Invalid, transport.Invalid},
		"retries end":      {retrypolicy.NoRetry{}, transport.Unavailable, transport.RetryExpired},
		"caller gives up":  {constant(time.Hour), transport.Unavailable, transport.Timeout},
	} {
		run(t, name, func(t *testing.T) {
			f := &fake{}
			f.request = func(*fakeSession, *transport.Request) (transport.Reply, bool) {
				if len(f.requests()) == 1 {
					return transport.Reply{}, false // lost with its connection
				}
				return transport.Reply{Err: refused(row.later)}, true
			}
			c := opened(t, f, &device.Options{MessagePolicy: row.policy, RetryPolicy: constant(time.Second)})
			result := make(chan error, 1)
			go func() { _, err := c.PatchReported(t.Context(), []byte(`{"a":1}`)); result <- err }()
			synctest.Wait()
			f.last().kill <- lost(transport.Network)
			err := <-result
			require.Equal(t, row.want, transport.KindOf(err))
			require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
			require.Len(t, f.requests(), 2)
		})
	}
}

// Every connection subscribes to the twin, to changes and to methods before it counts
// as connected, even if the hub remembers the subscriptions.
func TestEveryConnectionSubscribesToTwinAndMethods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const all = transport.FeatureMessages | transport.FeatureTwin | transport.FeatureDesired | transport.FeatureMethods
		f := &fake{request: answering}
		var during []device.State
		var c *device.Client
		f.subscribe = func(int) error { during = append(during, c.Status().State); return nil }
		c, _ = client(t, f, nil)
		c.HandleDesired(func(context.Context, device.Desired) {})
		c.HandleMessages(accept)
		require.NoError(t, c.HandleMethod("", ok))
		open(t, c)
		for range 4 {
			f.last().kill <- lost(transport.Network)
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		require.Equal(t, []transport.Features{all, all, all, all, all}, f.subscriptions())
		for _, state := range during {
			require.Equal(t, device.StateDisconnectedRetrying, state)
		}
	})
}

// Without retries, the loss of a connection is reported as retrying and then as the end. Twin
// calls fail with it, and the client can be opened again.
func TestWithoutRetriesALossFailsTwinCalls(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{request: silent}
		c, w := client(t, f, &device.Options{RetryPolicy: retrypolicy.NoRetry{}, MessagePolicy: constant(time.Second)})
		open(t, c)
		result := make(chan error, 1)
		go func() { _, err := c.PatchReported(t.Context(), []byte(`{}`)); result <- err }()
		synctest.Wait()
		f.last().kill <- lost(transport.Network)
		err := <-result
		require.ErrorIs(t, err, transport.RetryExpired)
		require.ErrorIs(t, err, transport.Network)
		require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
		synctest.Wait()
		require.Equal(t, device.StateDisconnected, c.Status().State)
		require.Equal(t, device.ReasonRetryExpired, c.Status().Reason)
		_, err = c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.RetryExpired, "at once")
		require.Equal(t, device.ReasonConnecting, w.reasons()[0])
		f.request = answering
		open(t, c)
		_, err = c.GetTwin(t.Context())
		require.NoError(t, err)
	})
}

// A patch that is refused for now is sent again with the same body.
func TestARefusedPatchIsTriedAgainWhole(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := refusingTwin(3, transport.Unavailable)
		c := opened(t, f, nil)
		patch := []byte(`{"readings":[1,2,3]}`)
		_, err := c.PatchReported(t.Context(), patch)
		require.NoError(t, err)
		clear(patch) // the client has its own copy
		asked := f.requests()
		require.Len(t, asked, 4)
		for _, r := range asked {
			require.Equal(t, `{"readings":[1,2,3]}`, string(r.Body))
		}
	})
}

// Close ends all pending twin calls, whatever they wait for.
func TestCloseEndsPendingTwinCalls(t *testing.T) {
	silent := silent
	for name, f := range map[string]*fake{
		"connecting":  {dial: hang},
		"waiting":     {dial: down},
		"flying":      {request: silent},
		"resting":     {request: refusing(transport.Throttled)},
		"subscribing": {subscribe: func(int) error { return errHold }},
	} {
		run(t, name, func(t *testing.T) {
			c, _ := client(t, f, &device.Options{RetryPolicy: constant(time.Minute)})
			require.NoError(t, c.Start())
			synctest.Wait()
			results := make(chan error, 20)
			for range 20 { // some of them wait for their turn
				go func() { _, err := c.GetTwin(t.Context()); results <- err }()
			}
			synctest.Wait()
			begin := time.Now()
			require.NoError(t, c.Close())
			for range 20 {
				require.ErrorIs(t, <-results, transport.Closed)
			}
			require.Less(t, time.Since(begin), time.Second)
		})
	}
}

// Open and every call report that the hub does not know the device.
func TestEveryCallReportsAnUnknownDevice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{dial: func(int, context.Context) error { return lost(transport.NotFound) }}
		c, _ := client(t, f, nil)
		require.ErrorIs(t, c.Open(t.Context()), transport.NotFound)
		require.Equal(t, device.StateDisconnected, c.Status().State)
		require.Equal(t, device.ReasonNotRetryable, c.Status().Reason)
		_, err := c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.NotFound)
		_, err = c.PatchReported(t.Context(), []byte(`{}`))
		require.ErrorIs(t, err, transport.NotFound)
		require.Len(t, f.dialTimes(), 1)
	})
}

// Which failures are retried and which are not.
func TestTwinCallsAreRetriedByKind(t *testing.T) {
	for kind, again := range map[transport.Kind]bool{
		transport.Network: true, transport.Throttled: true, transport.Quota: true, transport.Unavailable: true,
		transport.Timeout: true,
		transport.Unknown: false, transport.NotFound: false, transport.Forbidden: false, transport.Conflict: false,
		transport.Unauthorized: false,
		transport.Untrusted:    false, transport.Invalid: false, transport.TooLarge: false, transport.Unsupported: false,
	} {
		run(t, kind.String(), func(t *testing.T) {
			f := refusingTwin(1, kind)
			c := opened(t, f, nil)
			_, err := c.GetTwin(t.Context())
			if again {
				require.NoError(t, err)
				require.Len(t, f.requests(), 2)
			} else {
				require.Equal(t, kind, transport.KindOf(err))
				require.Len(t, f.requests(), 1)
			}
		})
	}
}

// A request refused for now is retried; refused for good, it fails at once. After
// MaxElapsed it fails with the last error. NoRetry makes one try.
func TestTwinCallsAreTriedAsOftenAsThePolicySays(t *testing.T) {
	for name, row := range map[string]struct {
		policy  retrypolicy.Policy
		refusal transport.Kind
		want    transport.Kind // 0: none
		tries   int
	}{
		"for now":  {constant(time.Second), transport.Unavailable, 0, 3},
		"for good": {constant(time.Second), transport.Invalid, transport.Invalid, 1},
		"past time": {retrypolicy.MaxElapsed{Policy: constant(time.Second), Limit: 999 * time.Millisecond},
			transport.Unavailable, transport.RetryExpired, 2},
		"no retry": {retrypolicy.NoRetry{}, transport.Unavailable, transport.RetryExpired, 1},
	} {
		run(t, name, func(t *testing.T) {
			f := &fake{}
			f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
				if n := len(f.requests()); n <= 2 {
					e := refused(row.refusal)
					e.Err = errors.New("refusal " + strconv.Itoa(n))
					return transport.Reply{Err: e}, true
				}
				return answering(s, r)
			}
			c := opened(t, f, &device.Options{MessagePolicy: row.policy})
			_, err := c.PatchReported(t.Context(), []byte(`{}`))
			require.Len(t, f.requests(), row.tries)
			if row.want == 0 {
				require.NoError(t, err)
				return
			}
			require.Equal(t, row.want, transport.KindOf(err))
			require.ErrorIs(t, err, row.refusal)
			require.ErrorContains(t, err, "refusal "+strconv.Itoa(row.tries), "the last error")
		})
	}
}

// Each twin call gets exactly one result, whatever the hub does: it answers, refuses, is
// silent, answers twice or late, or hangs up. A call without a result would stall the bubble; one
// with two results would block the loop.
func TestEachTwinCallGetsExactlyOneResult(t *testing.T) {
	for seed := range uint64(30) {
		bubble(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			f := &fake{}
			var mu sync.Mutex
			f.request = func(s *fakeSession, q *transport.Request) (transport.Reply, bool) {
				mu.Lock()
				what := r.IntN(8)
				mu.Unlock()
				reply, _ := answering(s, q)
				switch what {
				case 0:
					return reply, false
				case 1:
					return transport.Reply{Err: refused(transport.Unavailable)}, true
				case 2:
					return transport.Reply{Err: refused(transport.Invalid)}, true
				case 3:
					s.cfg.Sink.Reply(q.ID, reply) // a second time
				case 4:
					select {
					case s.kill <- lost(transport.Network):
					default:
					}
					return reply, false
				}
				return reply, true
			}
			c := opened(t, f, &device.Options{AckTimeout: 5 * time.Second, OperationTimeout: time.Minute,
				RetryPolicy: constant(time.Second)})
			const calls = 100
			results := make(chan error, 2*calls)
			for i := range calls {
				go func() {
					mu.Lock()
					patience := time.Duration(r.Int64N(int64(2 * time.Minute)))
					mu.Unlock()
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					var err error
					switch i % 3 {
					case 0:
						_, err = c.GetTwin(ctx)
					case 1:
						_, err = c.PatchReported(ctx, []byte(`{"a":1}`))
					default:
						_, err = c.PatchReportedIf(ctx, []byte(`{"a":1}`), 9)
					}
					results <- err
				}()
			}
			begin := time.Now()
			for range calls {
				if err := <-results; err != nil {
					require.NotNil(t, transport.Find(err), "seed %d: %v", seed, err)
				}
			}
			require.LessOrEqual(t, time.Since(begin), time.Minute, "seed %d", seed)
			synctest.Wait()
			require.Empty(t, results, "seed %d", seed)
			f.request = answering
			_, err := c.GetTwin(t.Context())
			require.NoError(t, err, "seed %d: and then all is well", seed)
		})
	}
}
