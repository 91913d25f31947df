package oteltrace_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe/otel/oteltrace"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// One trace leads from the output of a module, through the gateway, to the input of another module
// and to what that sends to the hub.
func TestATraceLeadsFromAnOutputToAnInput(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		hub, err := testbroker.New(&testbroker.Options{Seed: 1, Gateway: &testbroker.GatewayOptions{
			Name: "gateway.example.test", Routes: []string{
				`FROM /messages/modules/a/outputs/out INTO BrokeredEndpoint("/modules/b/inputs/in")`,
				"FROM /messages/modules/b/* INTO $upstream",
			}}})
		require.NoError(t, err)
		defer hub.Close()
		_, err = hub.AddDevice("edge-1")
		require.NoError(t, err)
		exporter := tracetest.NewInMemoryExporter()
		provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
		tracer := oteltrace.New(provider, nil)
		open := func(module string) (*device.Client, *oteltrace.Client) {
			t.Helper()
			_, err := hub.AddModule("edge-1", module)
			require.NoError(t, err)
			creds, err := device.ParseConnectionString(hub.ConnectionString("edge-1/" + module))
			require.NoError(t, err)
			c, err := device.New(creds, tracer.Transport(e.make(hub, creds)), nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			return c, tracer.Client(c)
		}
		a, fromA := open("a")
		b, fromB := open("b")
		b.HandleInput("in", tracer.Messages(func(ctx context.Context, m *transport.Message) error {
			return fromB.Send(ctx, &transport.Message{Body: m.Body})
		}))
		require.NoError(t, a.Open(t.Context()))
		require.NoError(t, b.Open(t.Context()))
		ctx, reading := provider.Tracer("program").Start(t.Context(), "reading")
		require.NoError(t, fromA.Enqueue(ctx, &transport.Message{Body: []byte("21.5"), Output: "out"}, nil))
		require.NoError(t, hub.WaitMessages(t.Context(), 1))
		synctest.Wait()
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
		require.NoError(t, hub.Close())
		tracer.Flush()

		parent := reading.SpanContext()
		for _, want := range []struct {
			name, client, destination string
			kind                      trace.SpanKind
		}{
			{"send outputs/out", "edge-1/a", "outputs/out", trace.SpanKindProducer},
			{"process inputs/in", "", "inputs/in", trace.SpanKindConsumer},
			{"send messages/events", "edge-1/b", "messages/events", trace.SpanKindProducer},
		} {
			found := named(exporter.GetSpans(), want.name)
			require.Len(t, found, 1, want.name)
			s := found[0]
			require.Equal(t, want.kind, s.SpanKind)
			require.Equal(t, parent.TraceID(), s.SpanContext.TraceID())
			require.Equal(t, parent.SpanID(), s.Parent.SpanID(), want.name)
			require.Equal(t, want.client, attr(s, "messaging.client.id"))
			require.Equal(t, want.destination, attr(s, "messaging.destination.name"))
			if want.client != "" {
				require.Equal(t, "gateway.example.test", attr(s, "server.address"))
			}
			parent = s.SpanContext
		}
		require.Equal(t, text(parent), parentOf(t, hub.Messages()[0]))
	})
}
