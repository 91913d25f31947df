package device_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

const twinDoc = `{"desired":{"interval":30,"$version":4},"reported":{"fw":"1.2","$version":9}}`

// answering answers twin requests like a hub.
func answering(_ *fakeSession, r *transport.Request) (transport.Reply, bool) {
	switch r.Op {
	case transport.OpTwinGet:
		return transport.Reply{Status: 200, Body: []byte(twinDoc)}, true
	case transport.OpTwinPatch:
		return transport.Reply{Status: 204, Version: 10}, true
	}
	return transport.Reply{Err: refused(transport.Unsupported)}, true
}

func TestTwinGetAndPatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{request: answering}
		c := opened(t, f, nil)
		require.Empty(t, f.subscriptions(), "nobody asked for the twin yet")
		twin, err := c.GetTwin(t.Context())
		require.NoError(t, err)
		require.Equal(t, &device.Twin{
			Desired: []byte(`{"interval":30,"$version":4}`), Reported: []byte(`{"fw":"1.2","$version":9}`), DesiredVersion: 4,
			ReportedVersion: 9,
		}, twin)
		patch := []byte(`{"fw":"1.3","old":null}`)
		version, err := c.PatchReported(t.Context(), patch)
		require.NoError(t, err)
		require.EqualValues(t, 10, version)
		_, err = c.PatchReportedIf(t.Context(), patch, 10)
		require.NoError(t, err)
		require.Equal(t, []transport.Features{transport.FeatureTwin}, f.subscriptions(), "once")
		asked := f.requests()
		require.Len(t, asked, 3)
		require.Equal(t, string(patch), string(asked[1].Body))
		require.EqualValues(t, 10, asked[2].Version)

		f.lose(transport.Network, time.Minute)
		require.Equal(t, []transport.Features{transport.FeatureTwin, transport.FeatureTwin}, f.subscriptions(),
			"subscribed again, before it is asked for")
	})
}

func TestTwinCallsAreChecked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{request: answering}
		c, _ := client(t, f, nil)
		_, err := c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.Closed, "not open")
		require.Equal(t, transport.OpTwinGet, transport.Find(err).Op)
		open(t, c)
		for _, bad := range []string{``, `[]`, `{"a":}`, `1`, `{}}`} {
			_, err = c.PatchReported(t.Context(), []byte(bad))
			require.ErrorIs(t, err, transport.Invalid, bad)
		}
		_, err = c.PatchReportedIf(t.Context(), []byte(`{}`), 0)
		require.ErrorIs(t, err, transport.Invalid)
		require.Empty(t, f.requests())

		f.request = func(*fakeSession, *transport.Request) (transport.Reply, bool) {
			return transport.Reply{Status: 200, Body: []byte(`{"desired":[]}`)}, true
		}
		_, err = c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.Protocol)
		require.NoError(t, c.Close())
		_, err = c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.Closed)
	})
}

// When the hub refuses the subscription to the twin, twin calls fail at once or as the message
// policy says. This session and the next one stay up without it.
func TestARefusedTwinLeavesTheSessionAlone(t *testing.T) {
	for _, kind := range []transport.Kind{
		transport.NotFound, transport.Invalid, transport.Unauthorized, transport.Protocol, transport.TooLarge,
		transport.Forbidden, transport.Unknown, transport.Unsupported,
	} {
		run(t, kind.String(), func(t *testing.T) {
			f := &fake{subscribe: func(int) error { return refused(kind) }, request: answering}
			c, w := client(t, f, nil)
			open(t, c)
			for range 2 {
				_, err := c.GetTwin(t.Context())
				require.Equal(t, kind, transport.KindOf(err))
				require.Equal(t, transport.OpTwinGet, transport.Find(err).Op)
				require.NotErrorIs(t, err, transport.ErrOutcomeUnknown, "nothing was handed over")
			}
			require.NoError(t, c.Send(t.Context(), msg(1)))
			time.Sleep(time.Hour)
			require.Len(t, f.subscriptions(), 2, "once for each call")
			require.Equal(t, []device.Reason{device.ReasonConnecting, device.ReasonConnectionOK}, w.reasons())
		})
	}
}

// The subscription is requested again, as the message policy says, after a refusal for now.
func TestATwinThatIsRefusedForNow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{request: answering}
		f.subscribe = func(int) error {
			if len(f.subscriptions()) < 4 {
				return refused(transport.Unavailable)
			}
			return nil
		}
		p := newWitness(constant(time.Second))
		c, w := client(t, f, &device.Options{MessagePolicy: p, RetryPolicy: constant(time.Second)})
		open(t, c)
		begin := time.Now()
		_, err := c.GetTwin(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3*time.Second, time.Since(begin))
		require.Len(t, f.subscriptions(), 4)
		require.Len(t, f.requests(), 1)

		// A later session may refuse the twin although earlier ones granted it.
		f.subscribe = func(int) error { return refused(transport.NotFound) }
		f.lose(transport.Network, time.Minute)
		_, err = c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.NotFound)
		require.NoError(t, c.Send(t.Context(), msg(1)))
		require.Equal(t, device.StateConnected, c.Status().State)
		require.Len(t, f.dialTimes(), 2)
		require.NotContains(t, w.reasons(), device.ReasonNotRetryable)

		f.subscribe = func(int) error { return refused(transport.Unavailable) }
		require.NoError(t, c.SetMessagePolicy(retrypolicy.NoRetry{}))
		_, err = c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.RetryExpired)
		require.ErrorIs(t, err, transport.Unavailable)
		require.Equal(t, device.StateConnected, c.Status().State)
		time.Sleep(time.Minute)
		p.balanced(t)
	})
}

// Calls in flight when the connection ended are repeated if that is harmless.
func TestTwinCallsOutliveConnections(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			if s.conn == 1 {
				return transport.Reply{}, false
			}
			return answering(s, r)
		}
		c := opened(t, f, nil)
		results := make(chan error, 3)
		go func() { _, err := c.GetTwin(t.Context()); results <- err }()
		go func() { _, err := c.PatchReported(t.Context(), []byte(`{"a":1}`)); results <- err }()
		synctest.Wait()
		require.Len(t, f.requests(), 2)
		f.last().kill <- lost(transport.Network)
		require.NoError(t, <-results)
		require.NoError(t, <-results)
		require.Len(t, f.requests(), 4)
		for i, r := range f.requests() {
			for j := range i {
				require.NotEqual(t, f.requests()[j].ID, r.ID, "an answer that comes late is for nobody")
			}
		}
	})
}

func TestAConditionalPatchIsNotRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{request: silent}
		c := opened(t, f, nil)
		result := async(func() error { _, err := c.PatchReportedIf(t.Context(), []byte(`{"a":1}`), 3); return err })
		synctest.Wait()
		f.last().kill <- lost(transport.Network)
		err := <-result
		require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.ErrorIs(t, err, transport.Network)
		require.Len(t, f.requests(), 1)
	})
}

// Patches are applied in the order of the calls; a read does not wait for them.
func TestPatchesGoOneAfterAnother(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			if r.Op == transport.OpTwinPatch {
				return transport.Reply{}, false
			}
			return answering(s, r)
		}
		c := opened(t, f, nil)
		results := make(chan int64, 2)
		for i := range 2 {
			go func() {
				v, err := c.PatchReported(t.Context(), []byte(`{"n":`+strconv.Itoa(i)+`}`))
				require.NoError(t, err)
				results <- v
			}()
			synctest.Wait()
		}
		_, err := c.GetTwin(t.Context())
		require.NoError(t, err)
		asked := f.requests()
		require.Len(t, asked, 2)
		require.Equal(t, `{"n":0}`, string(asked[0].Body))
		f.last().cfg.Sink.Reply(asked[0].ID, transport.Reply{Status: 204, Version: 5})
		require.EqualValues(t, 5, <-results)
		synctest.Wait()
		asked = f.requests()
		require.Equal(t, `{"n":1}`, string(asked[2].Body))
		f.last().cfg.Sink.Reply(asked[0].ID, transport.Reply{Status: 204, Version: 99}) // twice
		f.last().cfg.Sink.Reply(asked[2].ID, transport.Reply{Status: 204, Version: 6})
		require.EqualValues(t, 6, <-results)
	})
}

// The filter judges refusals first, then the message policy.
func TestRefusedTwinCalls(t *testing.T) {
	for _, row := range []struct {
		name    string
		kind    transport.Kind
		policy  retrypolicy.Policy
		refuses int // number of refusals before it answers
		want    transport.Kind
		after   time.Duration
		tries   int
	}{
		// 100 ms each, with the draw 0: the second delay is 100+C(1-Jd).
		{"unavailable", transport.Unavailable, nil, 2, 0, 200 * time.Millisecond, 3},
		{"throttled", transport.Throttled, nil, 1, 0, 10 * time.Second, 2},
		{"invalid", transport.Invalid, nil, 1, transport.Invalid, 0, 1},
		{"conflict", transport.Conflict, nil, 1, transport.Conflict, 0, 1},
		{"no retry", transport.Unavailable, retrypolicy.NoRetry{}, 1, transport.RetryExpired, 0, 1},
		{"retries end", transport.Unavailable, retrypolicy.MaxAttempts{Policy: retrypolicy.Backoff{Base: time.Second},
			Total: 3}, 9, transport.RetryExpired, 0, 3},
	} {
		run(t, row.name, func(t *testing.T) {
			f := refusingTwin(row.refuses, row.kind)
			c := opened(t, f, &device.Options{MessagePolicy: row.policy})
			begin := time.Now()
			_, err := c.GetTwin(t.Context())
			if row.want == 0 {
				require.NoError(t, err)
				require.GreaterOrEqual(t, time.Since(begin), row.after)
			} else {
				require.Equal(t, row.want, transport.KindOf(err))
			}
			require.Len(t, f.requests(), row.tries)
		})
	}
}

// A request without an answer is repeated after AckTimeout, until OperationTimeout.
func TestATwinAnswerThatIsLost(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			if len(f.requests()) == 1 {
				return transport.Reply{}, false
			}
			return answering(s, r)
		}
		c, w := client(t, f, &device.Options{AckTimeout: 10 * time.Second, OperationTimeout: time.Minute})
		open(t, c)
		begin := time.Now()
		_, err := c.PatchReported(t.Context(), []byte(`{}`))
		require.NoError(t, err)
		require.Equal(t, 10*time.Second+100*time.Millisecond, time.Since(begin))

		f.request = silent
		begin = time.Now()
		_, err = c.PatchReported(t.Context(), []byte(`{}`))
		require.ErrorIs(t, err, transport.Timeout)
		require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
		require.Equal(t, time.Minute, time.Since(begin))

		ctx := within(t, time.Second)
		_, err = c.GetTwin(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, []device.Reason{device.ReasonConnecting, device.ReasonConnectionOK}, w.reasons(),
			"no reason to hang up")
	})
}

func TestTwinCallsEndWithTheClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{request: silent}
		c := opened(t, f, nil)
		results := make(chan error, 20)
		for range 20 { // 16 calls, and some that wait for their turn
			go func() { _, err := c.PatchReported(t.Context(), []byte(`{}`)); results <- err }()
		}
		synctest.Wait()
		require.Len(t, f.requests(), 1)
		f.last().kill <- lost(transport.Forbidden) // Disconnected
		unknown := 0
		for range 20 {
			err := <-results
			require.ErrorIs(t, err, transport.Forbidden)
			if errors.Is(err, transport.ErrOutcomeUnknown) {
				unknown++
			}
		}
		require.Equal(t, 1, unknown, "the one that was handed over")
		_, err := c.GetTwin(t.Context())
		require.ErrorIs(t, err, transport.Forbidden, "at once")

		f.request = answering
		open(t, c)
		_, err = c.GetTwin(t.Context())
		require.NoError(t, err, "open again")
		f.request = silent
		go func() { _, err := c.GetTwin(t.Context()); results <- err }()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-results, transport.Closed)
	})
}

// A policy that is a gate and an observer sees each try of a call once.
func TestTwinCallsAreShownToThePolicy(t *testing.T) {
	withFake(t, func(t *testing.T, f *fake) {
		f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
			switch len(f.requests()) {
			case 1:
				return transport.Reply{Err: refused(transport.Unavailable)}, true
			case 2:
				return transport.Reply{}, false
			}
			return answering(s, r)
		}
		p := newWitness(retrypolicy.ExponentialBackoffWithJitter{})
		c := opened(t, f, &device.Options{MessagePolicy: p, RetryPolicy: retrypolicy.ExponentialBackoffWithJitter{},
			AckTimeout: time.Second})
		_, err := c.GetTwin(t.Context())
		require.NoError(t, err)
		require.Len(t, f.requests(), 3)

		f.request = silent
		ctx := within(t, time.Millisecond)
		_, err = c.GetTwin(ctx) // its caller gives up
		require.Error(t, err)
		go func() { _, _ = c.PatchReportedIf(t.Context(), []byte(`{}`), 1) }() // its connection is lost
		go func() { _, _ = c.GetTwin(t.Context()) }()                          // its policy is replaced
		synctest.Wait()
		require.NoError(t, c.SetMessagePolicy(retrypolicy.ExponentialBackoffWithJitter{}))
		f.lose(transport.Network, time.Minute)
		p.balanced(t)
	})
}

// A policy gets one report of a try whose caller gives up at the moment of the answer, with that
// answer.
func TestACallerThatGivesUpWhenTheAnswerComes(t *testing.T) {
	for _, err := range []error{nil, refused(transport.Unavailable)} {
		withFake(t, func(t *testing.T, f *fake) {
			ctx, cancel := context.WithCancel(t.Context())
			f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
				s.cfg.Sink.Reply(r.ID, transport.Reply{Status: 200, Body: []byte(twinDoc), Err: err})
				cancel()
				return transport.Reply{}, false
			}
			p := newWitness(retrypolicy.ExponentialBackoffWithJitter{})
			c := opened(t, f, &device.Options{MessagePolicy: p, RetryPolicy: retrypolicy.ExponentialBackoffWithJitter{}})
			done := make(chan struct{})
			inner := f.request
			f.request = func(s *fakeSession, r *transport.Request) (transport.Reply, bool) {
				reply, ok := inner(s, r)
				<-done // the caller returns before the loop handles the answer
				return reply, ok
			}
			_, _ = c.GetTwin(ctx)
			close(done)
			time.Sleep(time.Minute)
			p.balanced(t)
		})
	}
}

// A gate that asked for a delay is not asked again before its end.
func TestAGateHoldsATwinCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := &fake{request: answering}
		var asked atomic.Int32
		g := hooked{Policy: retrypolicy.NoRetry{}, admit: func(retrypolicy.Attempt) retrypolicy.Decision {
			if asked.Add(1) == 1 {
				return retrypolicy.Decision{Retry: true, Delay: 10 * time.Second}
			}
			return retrypolicy.Decision{Retry: true}
		}}
		c := opened(t, f, &device.Options{MessagePolicy: g, RetryPolicy: retrypolicy.ExponentialBackoffWithJitter{}})
		begin := time.Now()
		go func() {
			time.Sleep(time.Second)
			c.HandleDesired(func(context.Context, device.Desired) {}) // it pokes the loop
		}()
		_, err := c.GetTwin(t.Context())
		require.NoError(t, err)
		require.Equal(t, 10*time.Second, time.Since(begin))
	})
}
