package oteltrace_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe/otel/oteltrace"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

const (
	remoteTrace = "0102030405060708090a0b0c0d0e0f10"
	remoteSpan  = "1112131415161718"
	remote      = "00-" + remoteTrace + "-" + remoteSpan + "-01"
)

// What the handler sends belongs to the trace of the message that it handles.
func TestAHandlerContinuesTheTrace(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		r.client.HandleMessages(r.tracer.Messages(func(ctx context.Context, m *transport.Message) error {
			require.NoError(t, r.sender.Enqueue(ctx, &transport.Message{Body: m.Body}, nil))
			return nil
		}))
		require.NoError(t, r.client.Open(t.Context()))
		require.NoError(t, r.hub.SendC2D("dev-1", hubdata.C2D{MessageID: "c-1", CorrelationID: "k-1", Body: []byte("do"),
			Properties: []hubdata.Property{{Name: "traceparent", Value: remote}, {Name: "tracestate", Value: "vendor=1"}}}))
		require.NoError(t, r.hub.WaitMessages(t.Context(), 1))
		all := r.spans()
		require.Len(t, all, 2)
		process, send := named(all, "process messages/devicebound"), named(all, "send messages/events")
		require.Len(t, process, 1)
		require.Len(t, send, 1)
		p := process[0]
		require.Equal(t, trace.SpanKindConsumer, p.SpanKind)
		require.Equal(t, remoteTrace, p.SpanContext.TraceID().String())
		require.Equal(t, remoteSpan, p.Parent.SpanID().String())
		require.True(t, p.Parent.IsRemote())
		require.Equal(t, "vendor=1", p.Parent.TraceState().String())
		require.Len(t, p.Links, 1)
		require.Equal(t, remoteSpan, p.Links[0].SpanContext.SpanID().String())
		require.Equal(t, map[string]string{
			"messaging.system": "iothub", "messaging.operation.name": "process", "messaging.operation.type": "process",
			"messaging.destination.name": "messages/devicebound", "messaging.message.body.size": "2",
			"messaging.message.id": "c-1", "messaging.message.conversation_id": "k-1",
			"hubline.client.verdict": "accepted",
		}, attrs(p))
		require.Equal(t, p.SpanContext.SpanID(), send[0].Parent.SpanID())
		require.Equal(t, text(send[0].SpanContext), parentOf(t, r.hub.Messages()[0]))
	})
}

func TestVerdictsOfHandlers(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		require.Nil(t, r.tracer.Messages(nil))
		for _, c := range []struct {
			verdict, text string
			handle        device.MessageHandler
		}{
			{"accepted", "", func(context.Context, *transport.Message) error { return nil }},
			{"rejected", "no: message rejected by its handler", func(context.Context, *transport.Message) error {
				return errors.Join(errors.New("no: "+device.ErrReject.Error()), device.ErrReject)
			}},
			{"released", "later", func(context.Context, *transport.Message) error { return errors.New("later") }},
			{"released", "the handler panicked", func(context.Context, *transport.Message) error { panic("x") }},
			{"released", "the handler panicked", func(context.Context, *transport.Message) error {
				runtime.Goexit()
				return nil
			}},
		} {
			r.exporter.Reset()
			handle := r.tracer.Messages(c.handle)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { _ = recover() }()
				_ = handle(t.Context(), &transport.Message{Input: "in-1"})
			}()
			<-ended
			all := r.spans()
			require.Len(t, all, 1)
			require.Equal(t, "process inputs/in-1", all[0].Name)
			require.Equal(t, "inputs/in-1", attr(all[0], "messaging.destination.name"))
			require.Equal(t, c.verdict, attr(all[0], oteltrace.KeyVerdict))
			require.Contains(t, all[0].Status.Description, c.text)
			require.Equal(t, c.verdict != "accepted", all[0].Status.Code == codes.Error)
			require.Empty(t, all[0].Links, "no context")
		}
	})
}

func TestDirectMethodsHaveSpans(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		require.Nil(t, r.tracer.Method(nil))
		require.NoError(t, r.client.HandleMethod("", r.tracer.Method(func(_ context.Context, m *device.MethodCall) (int,
			[]byte) {
			switch m.Name {
			case "fail":
				return 503, nil
			case "crash":
				panic("x")
			}
			return 200, nil
		})))
		require.NoError(t, r.client.Open(t.Context()))
		for name, want := range map[string]map[string]string{
			"blink": {"rpc.method": "blink", "rpc.response.status_code": "200"},
			"fail":  {"rpc.method": "fail", "rpc.response.status_code": "503", "error.type": "503"},
			"crash": {"rpc.method": "crash", "error.type": "panic"},
		} {
			r.exporter.Reset()
			_, err := r.hub.CallMethod(t.Context(), "dev-1", hubdata.MethodCall{Name: name, ResponseTimeout: time.Minute})
			require.NoError(t, err)
			all := r.spans()
			require.Len(t, all, 1)
			require.Equal(t, "direct method", all[0].Name)
			require.Equal(t, trace.SpanKindServer, all[0].SpanKind)
			want["messaging.system"] = "iothub"
			require.Equal(t, want, attrs(all[0]))
			require.Equal(t, want["error.type"] != "", all[0].Status.Code == codes.Error)
		}
	})
}

func TestContextsOfPeersAreChecked(t *testing.T) {
	for _, value := range []string{"", "x", remote + "-x", remote[:54], "ff" + remote[2:], "00-" + remoteTrace +
		"-0000000000000000-01", "00-00000000000000000000000000000000-" + remoteSpan + "-01"} {
		m := &transport.Message{Properties: []transport.Property{{Name: "traceparent", Value: value}}}
		require.Equal(t, t.Context(), oteltrace.Extract(t.Context(), m), value)
	}
	for _, name := range []string{"traceparent", "Traceparent", "TRACEPARENT"} {
		m := &transport.Message{Properties: []transport.Property{{Name: "a", Value: "b"}, {Name: name, Value: remote},
			{Name: "TraceState", Value: "==="}}}
		sc := trace.SpanContextFromContext(oteltrace.Extract(t.Context(), m))
		require.Equal(t, remote, text(sc), name)
		require.True(t, sc.IsRemote())
		require.Zero(t, sc.TraceState().Len(), "not valid")
	}
}

func FuzzExtract(f *testing.F) {
	f.Add(remote, "vendor=1")
	f.Add("cc-"+remoteTrace+"-"+remoteSpan+"-01-more", "a=b,c=d,,")
	f.Fuzz(func(t *testing.T, parent, state string) {
		m := &transport.Message{Properties: []transport.Property{{Name: "traceparent", Value: parent},
			{Name: "tracestate", Value: state}}}
		ctx := oteltrace.Extract(context.Background(), m)
		if !trace.SpanContextFromContext(ctx).IsValid() {
			require.Equal(t, context.Background(), ctx)
			return
		}
		again := oteltrace.Inject(ctx, &transport.Message{})
		require.Equal(t, trace.SpanContextFromContext(ctx),
			trace.SpanContextFromContext(oteltrace.Extract(context.Background(), again)))
	})
}
