package outbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/http"
	"github.com/hubline-iot/hubline/transport/mqtt"
)

// threeRetries is a policy that stops.
var threeRetries = retrypolicy.MaxAttempts{Total: 4, Policy: retrypolicy.Fixed{Delay: time.Second}}

// A policy that gives up a message removes none: Run and Flush return the reason, and the next Run
// sends them all.
func TestAPolicyThatStopsRemovesNoMessage(t *testing.T) {
	for name, row := range map[string]struct {
		over func(*testbroker.Hub) transport.Transport
		busy fault.Fault
	}{
		"amqp": {func(hub *testbroker.Hub) transport.Transport {
			return amqp.New(&amqp.Options{Network: plain(hub, testbroker.PortAMQP)})
		}, fault.Fault{Kind: fault.RejectMessage, Condition: "com.microsoft:device-container-throttled"}},
		"http": {func(hub *testbroker.Hub) transport.Transport {
			return http.New(&http.Options{Network: plain(hub, testbroker.PortHTTP)})
		}, fault.Fault{Kind: fault.AnswerStatus, Route: fault.RouteTelemetry, Statuses: []int{429}}},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			hub := hubfixture.Open(t, nil, deviceID)
			row.busy.Times = -1
			busy := hub.Inject(row.busy)
			c := newClientOver(t, hub, row.over(hub), &device.Options{RetryPolicy: threeRetries})
			q := open(t, t.TempDir(), nil)
			put(t, q, 0, 20)
			ran := make(chan error, 1)
			go func() { ran <- q.Run(t.Context(), c) }()
			err := flushSoon(t, q)
			require.ErrorIs(t, err, transport.RetryExpired)
			require.ErrorIs(t, err, transport.Throttled)
			require.Equal(t, err, <-ran)
			require.Equal(t, err, flushSoon(t, q), "Run has ended before the call")
			require.Zero(t, q.Stats().Failed)
			require.EqualValues(t, 20, q.Stats().Waiting)

			busy.Remove()
			stop := start(q, c)
			require.NoError(t, flushSoon(t, q))
			require.ElementsMatch(t, ids(0, 20), arrived(hub))
			require.ErrorIs(t, stop(), context.Canceled)
			require.NoError(t, c.Close())
			require.NoError(t, q.Close())
		})
	}
}

// When the client has stopped to connect, Run and Flush return its reason at once. Another Run
// before the client is open hands nothing over. A client that is not open yet is waited for.
func TestAClientThatGaveUpEndsRun(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		hub := hubfixture.Open(t, nil, deviceID)
		away := hub.Inject(fault.Fault{Kind: fault.Absent})
		c := newClient(t, hub, &device.Options{RetryPolicy: threeRetries})
		q := open(t, t.TempDir(), nil)
		put(t, q, 0, 20)
		begun := time.Now()
		ran := make(chan error, 1)
		go func() { ran <- q.Run(t.Context(), c) }()
		err := flushSoon(t, q)
		gaveUp := c.Status()
		require.Equal(t, device.ReasonRetryExpired, gaveUp.Reason)
		require.Equal(t, gaveUp.Err, err)
		require.Equal(t, err, <-ran)
		require.Equal(t, gaveUp.Since, time.Now(), "after %v", time.Since(begun))

		queued := c.Stats().Queued
		require.Equal(t, err, ended(t, q, c))
		require.Equal(t, queued, c.Stats().Queued)
		require.EqualValues(t, 20, q.Stats().Waiting)

		away.Remove()
		require.NoError(t, c.Open(t.Context()))
		stop := start(q, c)
		require.NoError(t, flushSoon(t, q))
		require.Equal(t, ids(0, 20), arrived(hub))
		require.ErrorIs(t, stop(), context.Canceled)
		require.NoError(t, c.Close())
		require.NoError(t, q.Close())
	})
}

// Run may begin before the client is opened, and still learns that it gave up.
func TestRunBeforeTheClientIsOpened(t *testing.T) {
	for _, gone := range []bool{false, true} {
		testkit.Bubble(t, func(t *testing.T) {
			hub := hubfixture.Open(t, nil, deviceID)
			c := unopened(t, hub, mqtt.New(&mqtt.Options{Network: plain(hub, testbroker.PortMQTT)}),
				&device.Options{RetryPolicy: threeRetries})
			q := open(t, t.TempDir(), nil)
			put(t, q, 0, 3)
			stop := start(q, c)
			time.Sleep(time.Hour)
			require.EqualValues(t, 3, q.Stats().Waiting)
			if gone {
				hub.Inject(fault.Fault{Kind: fault.Absent})
				require.ErrorIs(t, c.Open(t.Context()), transport.RetryExpired)
				require.ErrorIs(t, flushSoon(t, q), transport.RetryExpired)
				require.ErrorIs(t, stop(), transport.RetryExpired)
			} else {
				require.NoError(t, c.Open(t.Context()))
				require.NoError(t, flushSoon(t, q))
				require.ErrorIs(t, stop(), context.Canceled)
			}
			require.NoError(t, c.Close())
			require.NoError(t, q.Close())
		})
	}
}

// answering is a client that finishes each message with the same error.
type answering struct {
	sending
	err error
}

func (a answering) Enqueue(context.Context, *transport.Message, *device.Receipt) error { return a.err }

// Only a result about the message itself removes it. All others end Run, which returns them, and
// the message stays.
func TestWhatRemovesAMessage(t *testing.T) {
	for kind := transport.Unknown; kind <= transport.Poison; kind++ {
		for _, scope := range []transport.Scope{transport.ScopeOperation, transport.ScopeConnection} {
			removes := false
			switch kind {
			case transport.Expired, transport.Invalid, transport.Unsupported, transport.Forbidden, transport.Conflict,
				transport.Protocol, transport.Unknown, transport.Poison:
				removes = scope == transport.ScopeOperation
			}
			testkit.Run(t, kind.String()+", "+scope.String(), func(t *testing.T) {
				q := openOn(t, newDisk(), nil)
				put(t, q, 0, 1)
				failure := &transport.Error{Kind: kind, Scope: scope, Op: transport.OpSend}
				ran := make(chan error, 1)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() { ran <- q.Run(ctx, answering{err: failure}) }()
				synctest.Wait()
				if removes {
					require.ErrorIs(t, q.Flush(t.Context()), kind, "without OnFailed, Flush tells")
					require.NoError(t, q.Flush(t.Context()), "once")
					require.EqualValues(t, 1, q.Stats().Failed)
					cancel()
				} else {
					require.Len(t, ran, 1)
				}
				err := <-ran
				if !removes {
					require.Equal(t, err, q.Flush(t.Context()))
					require.EqualValues(t, 1, q.Stats().Waiting)
					require.Zero(t, q.Stats().Failed)
				}
				if kind != transport.Dropped && !removes {
					require.ErrorIs(t, err, kind)
				}
				require.NoError(t, q.Close())
			})
		}
	}
	testkit.Bubble(t, func(t *testing.T) { // not of this module
		q := openOn(t, newDisk(), nil)
		put(t, q, 0, 1)
		odd := errors.New("odd")
		require.ErrorIs(t, ended(t, q, answering{err: odd}), odd)
		require.EqualValues(t, 1, q.Stats().Waiting)
		require.NoError(t, q.Close())
	})
}

// Flush tells how many messages failed, unless OnFailed has done so. Of two at a time, both tell.
func TestFlushTellsOfFailedMessages(t *testing.T) {
	for _, o := range []*outbox.Options{nil, {OnFailed: ignore}} {
		testkit.Bubble(t, func(t *testing.T) {
			q := openOn(t, newDisk(), o)
			put(t, q, 0, 3)
			other := make(chan error, 1)
			go func() { other <- q.Flush(t.Context()) }()
			synctest.Wait()
			stop := start(q, &taker{})
			for _, err := range []error{q.Flush(t.Context()), <-other} {
				if o == nil {
					require.ErrorIs(t, err, transport.Expired)
					require.ErrorContains(t, err, "without an acknowledgement: 3")
				} else {
					require.NoError(t, err)
				}
			}
			require.ErrorIs(t, stop(), context.Canceled)
			require.NoError(t, q.Flush(t.Context()))
			require.NoError(t, q.Close())
		})
	}
}

// Flush tells of a message that Run could not read, which OnFailed cannot get.
func TestFlushTellsOfDamagedMessages(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := newDisk()
		q := openOn(t, d, &outbox.Options{OnFailed: ignore})
		put(t, q, 0, 3)
		d.edit(d.segments(folder)[0], func(b []byte) []byte { b[len(b)-1]++; return b })
		stop := start(q, &taker{})
		err := q.Flush(t.Context())
		require.ErrorIs(t, err, outbox.ErrDamaged)
		require.ErrorContains(t, err, "without an acknowledgement: 1")
		require.NoError(t, q.Flush(t.Context()))
		require.ErrorIs(t, stop(), context.Canceled)
		require.NoError(t, q.Close())
	})
}
