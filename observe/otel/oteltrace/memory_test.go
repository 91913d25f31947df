package oteltrace_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"unsafe"
	"weak"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe/otel/oteltrace"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// stuck exports nothing until its channel is closed.
type stuck struct {
	sdk.SpanExporter
	until chan struct{}
}

func (s stuck) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	<-s.until
	return s.SpanExporter.ExportSpans(ctx, spans)
}

// stick returns a Tracer whose exporter is stuck until release or the end of the test.
func stick(r *rig, o *oteltrace.Options) (tracer *oteltrace.Tracer, release func()) {
	until := make(chan struct{})
	release = sync.OnceFunc(func() { close(until) })
	r.t.Cleanup(release)
	provider := sdk.NewTracerProvider(sdk.WithSyncer(stuck{r.exporter, until}))
	return oteltrace.New(provider, o), release
}

// A result that waits for the exporter keeps neither the body nor the properties in memory.
func TestResultsThatWaitKeepNoMessage(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, &device.Options{MaxMessages: 10}, nil)
		require.NoError(t, r.client.Open(t.Context()))
		tracer, release := stick(r, nil)
		sender := tracer.Client(r.client)
		const count = 100
		var bodies, values [count]weak.Pointer[byte]
		for i := range count {
			body, value := make([]byte, 10_000), make([]byte, 1_000)
			bodies[i], values[i] = weak.Make(&body[0]), weak.Make(&value[0])
			props := []transport.Property{{Name: "a", Value: unsafe.String(&value[0], len(value))}}
			m := &transport.Message{Body: body, Properties: props}
			require.NoError(t, sender.Enqueue(t.Context(), m, nil))
		}
		require.NoError(t, r.client.Flush(t.Context()))
		synctest.Wait()
		require.Empty(t, r.exporter.GetSpans())
		runtime.GC()
		kept := 0
		for i := range count {
			if bodies[i].Value() != nil || values[i].Value() != nil {
				kept++
			}
		}
		require.LessOrEqual(t, kept, 10, "a connection may keep its latest messages")
		release()
		tracer.Flush()
		require.Len(t, r.exporter.GetSpans(), count)
	})
}

// Over the limit messages are sent without spans of their own, in the trace of ctx, and counted.
func TestTheNumberOfOpenSpansIsLimited(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		require.NoError(t, r.client.Open(t.Context()))
		tracer, release := stick(r, &oteltrace.Options{MaxSpans: 5})
		sender := tracer.Client(r.client)
		ctx, reading := r.provider.Tracer("program").Start(t.Context(), "reading")
		for range 12 {
			require.NoError(t, sender.Enqueue(ctx, &transport.Message{Body: []byte("x")}, nil))
		}
		require.EqualValues(t, 7, tracer.Skipped())
		require.NoError(t, sender.Send(ctx, &transport.Message{Body: []byte("x")}))
		require.EqualValues(t, 8, tracer.Skipped())
		require.Len(t, r.hub.Messages(), 13, "all arrive")
		for _, m := range r.hub.Messages()[5:] {
			require.Equal(t, text(reading.SpanContext()), parentOf(t, m))
		}
		release()
		synctest.Wait()
		require.Len(t, r.exporter.GetSpans(), 5)

		for range 20 { // each returns its place
			require.NoError(t, sender.Send(ctx, &transport.Message{Body: []byte("x")}))
		}
		require.EqualValues(t, 8, tracer.Skipped())
		require.Len(t, r.exporter.GetSpans(), 25)
	})
}

// Messages whose spans are not recorded take no place.
func TestSpansThatAreNotRecordedAreNotLimited(t *testing.T) {
	var n nothing
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))
	tracer := oteltrace.New(provider, &oteltrace.Options{MaxSpans: 1})
	for range 10 {
		require.NoError(t, tracer.Client(&n).Enqueue(t.Context(), &transport.Message{}, nil))
	}
	require.Zero(t, tracer.Skipped())
}

// The bytes that a message with a span costs until the span ends, beyond those of the client.
func TestBytesOfAnOpenSpan(t *testing.T) {
	var n nothing
	provider := sdk.NewTracerProvider(sdk.WithSyncer(tracetest.NewInMemoryExporter()))
	sender := oteltrace.New(provider, nil).Client(&n)
	send := func() {
		m := &transport.Message{Body: make([]byte, 100_000)}
		require.NoError(t, sender.Enqueue(t.Context(), m, nil))
	}
	send()
	const count = 500
	before := heap()
	for range count {
		send()
	}
	each := (int64(heap()) - int64(before)) / count
	t.Logf("%d bytes", each)
	require.Less(t, each, int64(4<<10))
	runtime.KeepAlive(sender)
}

// heap returns the bytes in use.
func heap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
