package device_test

// Tests for the twin and direct methods: expectations of the SDKs' own tests (T and a number),
// defects of the Java SDK (L and a number) and problems of users (Pain and a number).

import (
	"context"
	"math/rand/v2"
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
			result := async(func() error { _, err := c.PatchReported(t.Context(), []byte(`{"a":1}`)); return err })
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
			f.lose(transport.Network, time.Minute)
		}
		synctest.Wait()
		require.Equal(t, []transport.Features{all, all, all, all, all}, f.subscriptions())
		for _, state := range during {
			require.Equal(t, device.StateDisconnectedRetrying, state)
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
			c := started(t, f, &device.Options{RetryPolicy: constant(time.Minute)})
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
					ctx := within(t, patience)
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
