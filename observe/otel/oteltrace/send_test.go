package oteltrace_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe/otel/oteltrace"
	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func TestAMessageHasASpanAndCarriesItsContext(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		state, err := trace.ParseTraceState("vendor=1")
		require.NoError(t, err)
		outer := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
			TraceFlags: trace.FlagsSampled, TraceState: state})
		ctx := trace.ContextWithSpanContext(t.Context(), outer)
		shared := []transport.Property{{Name: "a", Value: "1"}, {Name: "tracestate", Value: "left=over"}}
		m := &transport.Message{CorrelationID: "c-1", Body: []byte("reading"), Properties: shared[:1]}
		require.NoError(t, r.sender.Enqueue(ctx, m, nil))
		time.Sleep(time.Minute)
		require.NoError(t, r.client.Open(t.Context()))
		require.NoError(t, r.client.Flush(t.Context()))
		require.Len(t, m.Properties, 1)
		require.Equal(t, "tracestate", shared[1].Name, "the caller's memory is unchanged")

		all := r.spans()
		require.Len(t, all, 1)
		s := all[0]
		require.Equal(t, "send messages/events", s.Name)
		require.Equal(t, trace.SpanKindProducer, s.SpanKind)
		require.Equal(t, outer.SpanID(), s.Parent.SpanID())
		require.Equal(t, outer.TraceID(), s.SpanContext.TraceID())
		require.Equal(t, codes.Unset, s.Status.Code)
		require.GreaterOrEqual(t, s.EndTime.Sub(s.StartTime), time.Minute)
		log := r.hub.Messages()
		require.Len(t, log, 1)
		require.Equal(t, map[string]string{
			"messaging.system": "iothub", "messaging.operation.name": "send", "messaging.operation.type": "send",
			"messaging.destination.name": "messages/events", "messaging.message.body.size": "7",
			"messaging.message.conversation_id": "c-1", "messaging.message.id": log[0].MessageID,
			"messaging.client.id": "dev-1", "server.address": r.hub.HostName(),
			"hubline.message.attempts": "1", "hubline.message.queued": "60",
		}, attrs(s))
		require.Equal(t, "https://opentelemetry.io/schemas/1.43.0", s.InstrumentationScope.SchemaURL)

		require.Equal(t, text(s.SpanContext), parentOf(t, log[0]))
		require.Equal(t, "a", log[0].Properties[0].Name)
		require.Equal(t, "tracestate", log[0].Properties[2].Name)
		require.Equal(t, "vendor=1", log[0].Properties[2].Value)
	})
}

// A cut connection: the copies at the hub have one context, and the attempts are linked.
func TestResendsAreLinkedAttempts(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		require.NoError(t, r.client.Open(t.Context()))
		r.hub.Inject(fault.Fault{Kind: fault.DropAfterPublish, Times: 2})
		require.NoError(t, r.sender.Send(t.Context(), &transport.Message{ID: "m-1", Body: []byte("x")}))
		require.NoError(t, r.sender.Send(t.Context(), &transport.Message{ID: "m-2", Body: []byte("y")}))

		all := r.spans()
		sends, attempts := named(all, "send messages/events"), named(all, "attempt")
		require.Len(t, sends, 2)
		require.Len(t, attempts, 3)
		require.Equal(t, "3", attr(sends[0], oteltrace.KeyAttempts))
		require.Equal(t, "1", attr(sends[1], oteltrace.KeyAttempts))
		require.Equal(t, codes.Unset, sends[0].Status.Code, "it arrived")
		for i, a := range attempts {
			require.Equal(t, sends[0].SpanContext.SpanID(), a.Parent.SpanID())
			require.Equal(t, trace.SpanKindClient, a.SpanKind)
			require.Equal(t, "dev-1", attr(a, "messaging.client.id"))
			require.Equal(t, "attempt", attr(a, "messaging.operation.name"))
			if i > 0 {
				require.Len(t, a.Links, 1)
				require.Equal(t, attempts[i-1].SpanContext.SpanID(), a.Links[0].SpanContext.SpanID())
				require.False(t, a.StartTime.Before(attempts[i-1].EndTime))
			} else {
				require.Empty(t, a.Links)
			}
			if i < 2 {
				require.Equal(t, "network failure", attr(a, "error.type"))
				require.Equal(t, codes.Error, a.Status.Code)
			} else {
				require.Equal(t, codes.Unset, a.Status.Code)
			}
		}
		log := r.hub.Messages()
		require.Len(t, log, 4, "three copies and the second message")
		for _, m := range log[:3] {
			require.Equal(t, text(sends[0].SpanContext), parentOf(t, m))
		}
		require.Equal(t, text(sends[1].SpanContext), parentOf(t, log[3]))
	})
}

func TestRefusalsOfTheHub(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		if e.name == "mqtt" {
			return // MQTT has no refusal of one message
		}
		r := newRig(t, e, nil, nil)
		require.NoError(t, r.client.Open(t.Context()))
		r.hub.Inject(fault.Fault{Kind: fault.ReleaseMessage})
		require.NoError(t, r.sender.Send(t.Context(), &transport.Message{Body: []byte("released, then taken")}))
		all := r.spans()
		attempts := named(all, "attempt")
		require.Len(t, attempts, 2)
		require.NotEmpty(t, attr(attempts[0], "error.type"))
		require.Equal(t, "unavailable", strings.TrimPrefix(attr(attempts[0], "error.type"), "service "))
		require.Empty(t, attr(attempts[1], "error.type"))

		r.exporter.Reset()
		r.hub.Inject(fault.Fault{Kind: fault.RejectMessage, Condition: "amqp:not-allowed"})
		err := r.sender.Send(t.Context(), &transport.Message{Body: []byte("rejected")})
		require.Error(t, err)
		all = r.spans()
		require.Len(t, all, 1, "an answer to the only attempt needs no span of its own")
		require.Equal(t, transport.KindOf(err).String(), attr(all[0], "error.type"))
		require.Equal(t, sdk.Status{Code: codes.Error, Description: err.Error()}, all[0].Status)
	})
}

// Messages that end without a connection have their spans' ends in time.
func TestEndsWithoutAConnection(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, &device.Options{MaxMessages: 2, Overflow: device.OverflowDropOldest}, nil)
		start := time.Now()
		require.NoError(t, r.sender.Enqueue(t.Context(), &transport.Message{ID: "dropped"}, nil))
		require.NoError(t, r.sender.Enqueue(t.Context(), &transport.Message{ID: "expired",
			Expires: start.Add(time.Minute)}, nil))
		require.NoError(t, r.sender.Enqueue(t.Context(), &transport.Message{ID: "closed"}, nil))
		require.ErrorIs(t, r.sender.Send(t.Context(), &transport.Message{ID: "not open"}), transport.Closed)
		time.Sleep(time.Hour)
		require.NoError(t, r.client.Close())
		require.ErrorIs(t, r.sender.Enqueue(t.Context(), &transport.Message{ID: "late"}, nil), transport.Closed)

		type end struct {
			kind  string
			after time.Duration
		}
		got := map[string]end{}
		for _, s := range r.spans() {
			require.Equal(t, "send messages/events", s.Name)
			require.Equal(t, codes.Error, s.Status.Code)
			require.Empty(t, attr(s, oteltrace.KeyAttempts))
			require.Empty(t, attr(s, oteltrace.KeyOutcomeUnknown))
			got[attr(s, "messaging.message.id")] = end{attr(s, "error.type"), s.EndTime.Sub(start)}
		}
		require.Equal(t, map[string]end{
			"dropped":  {"message dropped", 0},
			"expired":  {"message expired", time.Minute},
			"not open": {"client closed", 0},
			"closed":   {"client closed", time.Hour},
			"late":     {"client closed", time.Hour},
		}, got)
	})
}

func TestOverflowRules(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		for _, rule := range []device.Overflow{device.OverflowFail, device.OverflowDropNewest} {
			r := newRig(t, e, &device.Options{MaxMessages: 1, Overflow: rule}, nil)
			require.NoError(t, r.sender.Enqueue(t.Context(), &transport.Message{ID: "first"}, nil))
			var receipt device.Receipt
			err := r.sender.Enqueue(t.Context(), &transport.Message{ID: "second"}, &receipt)
			if rule == device.OverflowDropNewest {
				require.NoError(t, err)
				err = receipt.Wait(t.Context())
			}
			require.ErrorIs(t, err, transport.Dropped)
			all := r.spans()
			require.Len(t, all, 1)
			require.Equal(t, "second", attr(all[0], "messaging.message.id"))
			require.Equal(t, "message dropped", attr(all[0], "error.type"))
		}
	})
}

// A message that was handed over and not answered when the client closes.
func TestCloseWithAMessageInFlight(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		require.NoError(t, r.client.Open(t.Context()))
		r.hub.Inject(fault.Fault{Kind: fault.SwallowPuback, Times: -1})
		require.NoError(t, r.sender.Enqueue(t.Context(), &transport.Message{Body: []byte("x")}, nil))
		synctest.Wait()
		time.Sleep(time.Second)
		require.NoError(t, r.client.Close())
		r.tracer.Flush()
		all := r.exporter.GetSpans()
		require.Len(t, all, 2)
		require.Equal(t, "attempt", all[0].Name)
		require.Equal(t, "cancelled", attr(all[0], "error.type"))
		require.Equal(t, "client closed", attr(all[1], "error.type"))
		require.Equal(t, "true", attr(all[1], oteltrace.KeyOutcomeUnknown))
		require.GreaterOrEqual(t, all[1].EndTime.Sub(all[1].StartTime), time.Second)
	})
}

// A caller's receipt works as without spans, and a busy one spoils nothing.
func TestReceiptsOfTheCaller(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		var receipt device.Receipt
		require.NoError(t, r.sender.Enqueue(t.Context(), &transport.Message{ID: "m-1"}, &receipt))
		require.ErrorIs(t, r.sender.Enqueue(t.Context(), &transport.Message{ID: "m-2"}, &receipt), transport.Invalid)
		require.NoError(t, r.client.Open(t.Context()))
		require.NoError(t, receipt.Wait(t.Context()))
		require.ErrorIs(t, r.sender.Enqueue(t.Context(), nil, &receipt), transport.Invalid)
		require.ErrorIs(t, r.sender.Send(t.Context(), nil), transport.Invalid)
		for range 3 {
			require.NoError(t, r.sender.Enqueue(t.Context(), &transport.Message{ID: "m-3"}, &receipt))
			require.NoError(t, receipt.Wait(t.Context()))
		}
		var got []string
		for _, s := range r.spans() {
			got = append(got, attr(s, "messaging.message.id")+" "+attr(s, "error.type"))
		}
		require.Equal(t, []string{"m-2 invalid", "m-1 ", "m-3 ", "m-3 ", "m-3 "}, got)
	})
}

// A message that has a context keeps it, from the program that put it into a queue on disk too.
func TestAForwardedMessageKeepsItsContext(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		require.NoError(t, r.client.Open(t.Context()))
		ctx, reading := r.provider.Tracer("program").Start(t.Context(), "reading")
		m := oteltrace.Inject(ctx, &transport.Message{Body: []byte("x"), Properties: []transport.Property{
			{Name: "TraceParent", Value: "not valid"}}})
		require.Len(t, m.Properties, 1, "replaced")
		require.Same(t, m, oteltrace.Inject(ctx, m), "it has one")
		reading.End()
		r.exporter.Reset()

		q, err := outbox.Open(t.TempDir(), nil)
		require.NoError(t, err)
		require.NoError(t, q.Put(t.Context(), m))
		run, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- q.Run(run, r.sender) }()
		require.NoError(t, r.hub.WaitMessages(t.Context(), 1))
		all := r.spans()
		stop()
		require.ErrorIs(t, <-done, transport.Cancelled)
		require.NoError(t, q.Close())

		require.Len(t, all, 1)
		require.Equal(t, trace.SpanKindClient, all[0].SpanKind)
		require.Equal(t, reading.SpanContext().TraceID(), all[0].SpanContext.TraceID())
		require.Equal(t, reading.SpanContext().SpanID(), all[0].Parent.SpanID())
		require.Len(t, all[0].Links, 1)
		require.Equal(t, reading.SpanContext().SpanID(), all[0].Links[0].SpanContext.SpanID())
		require.Equal(t, text(reading.SpanContext()), parentOf(t, r.hub.Messages()[0]))
		require.Equal(t, "1", attr(all[0], oteltrace.KeyAttempts))
	})
}

// A message without room for a context is sent without one.
func TestNoRoomForAContext(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, &device.Options{NoMessageIDs: true}, nil)
		require.NoError(t, r.client.Open(t.Context()))
		const context = len("traceparent") + 55
		body := make([]byte, transport.MaxMessageSize-context)
		require.NoError(t, r.sender.Send(t.Context(), &transport.Message{ID: "", Body: body}))
		require.NoError(t, r.sender.Send(t.Context(), &transport.Message{Body: append(body, 0)}))
		long := []transport.Property{{Name: "p", Value: strings.Repeat("x", 16<<10-1-context)}}
		require.NoError(t, r.sender.Send(t.Context(), &transport.Message{Properties: long}))
		long[0].Value += "x"
		require.NoError(t, r.sender.Send(t.Context(), &transport.Message{Properties: long}))
		log := r.hub.Messages()
		require.Len(t, log, 4)
		require.NotEmpty(t, parentOf(t, log[0]))
		require.Empty(t, parentOf(t, log[1]))
		require.NotEmpty(t, parentOf(t, log[2]))
		require.Empty(t, parentOf(t, log[3]))
		require.Len(t, r.spans(), 4)
	})
}

// Only the last attempts become spans, and all are counted.
func TestManyAttempts(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		require.NoError(t, r.client.Open(t.Context()))
		r.hub.Inject(fault.Fault{Kind: fault.DropAfterPublish, Times: 150})
		var receipt device.Receipt
		require.NoError(t, r.sender.Enqueue(t.Context(), &transport.Message{ID: "m-1"}, &receipt))
		require.NoError(t, receipt.Wait(t.Context()))
		all := r.spans()
		require.Len(t, all, 128+1)
		require.Equal(t, "151", attr(all[128], oteltrace.KeyAttempts))
		require.Empty(t, attr(all[127], "error.type"), "the last one arrived")
	})
}
