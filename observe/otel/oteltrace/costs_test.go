package oteltrace_test

import (
	"context"
	"sync"
	"testing"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/observe/otel/oteltrace"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/stretchr/testify/require"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// nothing is a Sender that does nothing.
type nothing struct{ last *transport.Message }

func (n *nothing) Enqueue(_ context.Context, m *transport.Message, _ *device.Receipt) error {
	n.last = m
	return nil
}

func (n *nothing) Flush(context.Context) error { return nil }

func (n *nothing) Send(_ context.Context, m *transport.Message) error {
	n.last = m
	return nil
}

// Allocations for each message beyond those of the client.
func TestCostsWithoutSpans(t *testing.T) {
	none := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample()))
	m := &transport.Message{Body: []byte("reading"), Properties: []transport.Property{{Name: "a", Value: "b"}}}
	t.Run("no provider", func(t *testing.T) {
		var n nothing
		sender := oteltrace.New(noop.NewTracerProvider(), nil).Client(&n)
		allocs := testing.AllocsPerRun(100, func() { _ = sender.Enqueue(context.Background(), m, nil) })
		require.LessOrEqual(t, allocs, 1.0, "the API's own")
		require.Same(t, m, n.last)
	})
	t.Run("not sampled", func(t *testing.T) {
		var n nothing
		sender := oteltrace.New(none, nil).Client(&n)
		allocs := testing.AllocsPerRun(100, func() { _ = sender.Send(context.Background(), m) })
		t.Logf("%v allocations a message", allocs)
		require.LessOrEqual(t, allocs, 9.0)
		require.NotSame(t, m, n.last)
		require.Len(t, n.last.Properties, 2)
		require.Regexp(t, "^00-[0-9a-f]{32}-[0-9a-f]{16}-0[02]$", n.last.Properties[1].Value)
	})
}

// Spans that are not sampled are not recorded, and their contexts are carried.
func TestNotSampled(t *testing.T) {
	inBubbles(t, func(t *testing.T, e engine) {
		r := newRig(t, e, nil, sdk.NeverSample())
		require.NoError(t, r.client.Open(t.Context()))
		r.hub.Inject(fault.Fault{Kind: fault.DropAfterPublish})
		require.NoError(t, r.sender.Send(t.Context(), &transport.Message{Body: []byte("x")}))
		require.NoError(t, r.sender.Send(t.Context(), &transport.Message{Output: "", Properties: []transport.Property{
			{Name: "traceparent", Value: remote}}}))
		log := r.hub.Messages()
		require.Len(t, log, 3)
		require.Regexp(t, "-0[02]$", parentOf(t, log[0]))
		require.Equal(t, parentOf(t, log[0]), parentOf(t, log[1]))
		require.Equal(t, remote, parentOf(t, log[2]), "a context of the message's own")
		all := r.spans()
		require.Len(t, all, 1, "the second one has a sampled parent")
		require.Equal(t, remoteSpan, all[0].Parent.SpanID().String())
	})
}

// Many goroutines send while connections are cut; each message has its span.
func TestConcurrently(t *testing.T) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			r := newRig(t, e, &device.Options{MaxMessages: 64}, nil)
			require.NoError(t, r.client.Open(t.Context()))
			const senders, each = 4, 50
			var wg sync.WaitGroup
			for range senders {
				wg.Go(func() {
					for i := range each {
						var err error
						if i%2 == 0 {
							err = r.sender.Enqueue(t.Context(), &transport.Message{Body: []byte("x")}, nil)
						} else {
							err = r.sender.Send(t.Context(), &transport.Message{Body: []byte("x")})
						}
						if err != nil {
							t.Error(err)
						}
						if i == each/2 {
							r.hub.Drop("dev-1")
						}
					}
				})
			}
			wg.Wait()
			require.NoError(t, r.client.Flush(t.Context()))
			require.NoError(t, r.client.Close())
			r.tracer.Flush()
			sends := named(r.exporter.GetSpans(), "send messages/events")
			require.Len(t, sends, senders*each)
			known := map[string]bool{}
			for _, s := range sends {
				known[text(s.SpanContext)] = true
				require.NotEqual(t, "0", attr(s, oteltrace.KeyAttempts))
			}
			for _, m := range r.hub.Messages() {
				require.True(t, known[parentOf(t, m)])
			}
		})
	}
}
