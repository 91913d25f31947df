package oteltrace_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe/otel/oteltrace"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// able is a transport whose sessions have every optional ability, or none.
type able struct{ all bool }

func (a able) Dial(context.Context, *transport.Config) (transport.Session, error) {
	if a.all {
		return abilities{}, nil
	}
	return struct{ transport.Session }{}, nil
}

type abilities struct{ transport.Session }

func (abilities) Progress() (time.Time, bool) { return time.Unix(7, 0), true }
func (abilities) TwinNumber() uint32          { return 7 }

func TestOptionalAbilitiesOfSessionsAreKept(t *testing.T) {
	tracer := oteltrace.New(noop.NewTracerProvider(), nil)
	cfg := &transport.Config{Creds: &transport.Credentials{}}
	s, err := tracer.Transport(able{true}).Dial(t.Context(), cfg)
	require.NoError(t, err)
	require.EqualValues(t, 7, s.(transport.Twinned).TwinNumber())
	at, waits := s.(transport.Progressor).Progress()
	require.EqualValues(t, 7, at.Unix())
	require.True(t, waits)
	s, err = tracer.Transport(able{}).Dial(t.Context(), cfg)
	require.NoError(t, err)
	require.Zero(t, s.(transport.Twinned).TwinNumber())
	_, ok := s.(transport.Progressor)
	require.False(t, ok)
}

// slow exports each span for a minute.
type slow struct{ sdk.SpanExporter }

func (s slow) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	time.Sleep(time.Minute)
	return s.SpanExporter.ExportSpans(ctx, spans)
}

// An exporter that blocks delays neither the client nor the times of spans.
func TestASlowExporterDelaysNothing(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, nil)
		provider := sdk.NewTracerProvider(sdk.WithSyncer(slow{r.exporter}))
		tracer := oteltrace.New(provider, &oteltrace.Options{System: "other"})
		sender := tracer.Client(r.client)
		require.NoError(t, r.client.Open(t.Context()))
		start := time.Now()
		var receipts [5]device.Receipt
		for i := range receipts {
			require.NoError(t, sender.Enqueue(t.Context(), &transport.Message{Body: []byte("x")}, &receipts[i]))
		}
		for i := range receipts {
			require.NoError(t, receipts[i].Wait(t.Context()))
		}
		require.Less(t, time.Since(start), time.Second)
		synctest.Wait()
		tracer.Flush()
		require.Equal(t, 5*time.Minute, time.Since(start).Truncate(time.Second))
		all := r.exporter.GetSpans()
		require.Len(t, all, 5)
		for _, s := range all {
			require.Less(t, s.EndTime.Sub(start), time.Second)
			require.Equal(t, "other", attr(s, "messaging.system"))
		}
	})
}
