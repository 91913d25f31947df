package oteltrace_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/callback"
	"github.com/hubline-iot/hubline/observe/otel/oteltrace"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
)

// A Send that gave up leaves its message in flight. Whatever ends the attempt later comes after the
// end of the span, and changes neither the span nor the client.
func TestAnAttemptThatEndsAfterItsSpan(t *testing.T) {
	for _, c := range []struct {
		name   string
		fault  fault.Fault
		limit  time.Duration // of ctx; 0: Options.OperationTimeout gives up
		then   func(r *rig)
		copies int // at the hub
	}{
		{"answer", fault.Fault{Kind: fault.SlowPuback, Times: 1, Delay: 5 * time.Second}, time.Second, nil, 1},
		{"answer after the client's limit",
			fault.Fault{Kind: fault.SlowPuback, Times: 1, Delay: 5 * time.Second}, 0, nil, 1},
		{"end of the session", fault.Fault{Kind: fault.SwallowPuback, Times: 1}, time.Second,
			func(r *rig) { r.hub.Drop("dev-1") }, 2},
		{"close", fault.Fault{Kind: fault.SwallowPuback, Times: 1}, time.Second,
			func(r *rig) { _ = r.client.Close() }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubbles(t, func(t *testing.T, e engine) {
				ended := make(chan error, 10)
				r := newRig(t, e, &device.Options{OperationTimeout: 2 * time.Second, Trace: &device.Trace{
					SessionEnd: func(err error, _ time.Duration) { ended <- err }}}, nil)
				require.NoError(t, r.client.Open(t.Context()))
				r.hub.Inject(c.fault)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.limit > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.limit)
					defer cancel()
				}
				start := time.Now()
				err := r.sender.Send(ctx, &transport.Message{Body: []byte("x")})
				require.ErrorIs(t, err, transport.ErrOutcomeUnknown)
				gaveUp := time.Since(start)
				if c.then != nil {
					c.then(r)
				}
				time.Sleep(10 * time.Second)
				if c.name != "close" {
					require.NoError(t, r.sender.Send(t.Context(), &transport.Message{ID: "next"}))
					require.Zero(t, r.client.Stats().Queued)
				}

				for range len(ended) {
					require.NotErrorAs(t, <-ended, new(*callback.Error), "nothing panicked")
				}
				sends, attempts := named(r.spans(), "send messages/events"), named(r.spans(), "attempt")
				require.Equal(t, gaveUp, sends[0].EndTime.Sub(sends[0].StartTime))
				require.Equal(t, "true", attr(sends[0], oteltrace.KeyOutcomeUnknown))
				require.Equal(t, "1", attr(sends[0], oteltrace.KeyAttempts))
				require.Len(t, attempts, 1)
				require.Equal(t, sends[0].EndTime, attempts[0].EndTime)
				copies := 0
				for _, m := range r.hub.Messages() {
					if parentOf(t, m) == text(sends[0].SpanContext) {
						copies++
					}
				}
				require.Equal(t, c.copies, copies)
			})
		})
	}
}

// Messages that leave a full queue, or end with the client, while others are in flight.
func TestEndsWhileOthersAreInFlight(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		for _, rule := range []device.Overflow{device.OverflowDropOldest, device.OverflowDropNewest, device.OverflowFail} {
			r := newRig(t, e, &device.Options{MaxMessages: 2, Window: 1, Overflow: rule}, nil)
			require.NoError(t, r.client.Open(t.Context()))
			r.hub.Inject(fault.Fault{Kind: fault.SlowPuback, Times: -1, Delay: 5 * time.Second})
			for range 4 {
				_ = r.sender.Enqueue(t.Context(), &transport.Message{Body: []byte("x")}, nil)
				synctest.Wait()
			}
			time.Sleep(time.Second)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_ = r.sender.Send(ctx, &transport.Message{Body: []byte("y")})
			cancel()
			time.Sleep(5 * time.Second)
			require.NoError(t, r.client.Stats().LastError)
			require.NoError(t, r.client.Close())
			r.tracer.Flush()
			require.Len(t, named(r.spans(), "send messages/events"), 5, "%v", rule)
		}
	})
}
