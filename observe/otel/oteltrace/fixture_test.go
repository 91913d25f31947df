package oteltrace_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/hubfixture"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/observe/otel/oteltrace"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/amqp"
	"github.com/hubline-iot/hubline/transport/mqtt"
	"github.com/hubline-iot/hubline/transport/netopt"
)

// engine makes a transport to a hub in memory.
type engine struct {
	name string
	make func(hub *testbroker.Hub, creds *transport.Credentials) transport.Transport
}

var engines = []engine{
	{"mqtt", func(hub *testbroker.Hub, creds *transport.Credentials) transport.Transport {
		return mqtt.New(&mqtt.Options{Network: netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortMQTT)}})
	}},
	{"amqp", func(hub *testbroker.Hub, _ *transport.Credentials) transport.Transport {
		return amqp.New(&amqp.Options{Network: netopt.Options{Plaintext: true, Dial: hub.Dial(testbroker.PortAMQP)}})
	}},
}

// rig is a client with spans, and its hub.
type rig struct {
	t        testing.TB
	hub      *testbroker.Hub
	exporter *tracetest.InMemoryExporter
	provider *sdk.TracerProvider
	tracer   *oteltrace.Tracer
	client   *device.Client
	sender   *oteltrace.Client
}

// newRig makes a rig. The sampler nil samples every span.
func newRig(t testing.TB, e engine, o *device.Options, sampler sdk.Sampler) *rig {
	t.Helper()
	r := &rig{t: t, exporter: tracetest.NewInMemoryExporter()}
	if sampler == nil {
		sampler = sdk.AlwaysSample()
	}
	r.provider = sdk.NewTracerProvider(sdk.WithSyncer(r.exporter), sdk.WithSampler(sdk.ParentBased(sampler)))
	t.Cleanup(func() { _ = r.provider.Shutdown(context.Background()) })
	r.hub = hubfixture.Open(t, &testbroker.Options{Seed: 1}, "dev-1")
	creds, err := device.ParseConnectionString(r.hub.ConnectionString("dev-1"))
	require.NoError(t, err)
	if o == nil {
		o = &device.Options{}
	}
	o.Rand = func() uint64 { return 0 }
	r.tracer = oteltrace.New(r.provider, nil)
	r.client, err = device.New(creds, r.tracer.Transport(e.make(r.hub, creds)), o)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.client.Close() })
	r.sender = r.tracer.Client(r.client)
	return r
}

// inBubbles runs f once for each engine, in fake time.
func inBubbles(t *testing.T, f func(t *testing.T, e engine)) {
	t.Helper()
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			testkit.In2030(t, func(t *testing.T) {
				f(t, e)
			})
		})
	}
}

// spans returns the spans that ended, in the order of their ends, once everything is at rest.
func (r *rig) spans() tracetest.SpanStubs {
	synctest.Wait()
	return r.exporter.GetSpans()
}

// named returns the spans with this name.
func named(all tracetest.SpanStubs, name string) tracetest.SpanStubs {
	var found tracetest.SpanStubs
	for _, s := range all {
		if s.Name == name {
			found = append(found, s)
		}
	}
	return found
}

// attrs returns the attributes of a span as text.
func attrs(s tracetest.SpanStub) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[string(a.Key)] = a.Value.String()
	}
	return all
}

// attr returns one attribute of a span as text, empty if there is none.
func attr(s tracetest.SpanStub, key attribute.Key) string { return attrs(s)[string(key)] }

// parentOf returns the property traceparent of a message at the hub, which is there once at most.
func parentOf(t *testing.T, m hubdata.Message) string {
	t.Helper()
	var found []string
	for _, p := range m.Properties {
		if p.Name == "traceparent" {
			found = append(found, p.Value)
		}
	}
	require.LessOrEqual(t, len(found), 1)
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// text returns a span's context as the W3C writes it.
func text(c trace.SpanContext) string {
	return "00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String()
}
