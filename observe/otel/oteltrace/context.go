package oteltrace

import (
	"context"
	"strings"

	"github.com/hubline-iot/hubline/transport"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Names of the properties with the trace context ("Trace Context", W3C).
const (
	propertyParent = "traceparent"
	propertyState  = "tracestate"
)

// mostProperties is the maximum size of a message without its body, in bytes, for which a context
// is added. Percent-encoded it leaves room in an MQTT topic of 65,535 bytes.
const mostProperties = 16 << 10

// Inject returns a copy of m with the context of the span in ctx, or m if there is no span, m has a
// context already, or m would be too large with it. The copy shares m's body.
func Inject(ctx context.Context, m *transport.Message) *transport.Message {
	if remoteOf(m).IsValid() {
		return m
	}
	props, ok := with(trace.SpanContextFromContext(ctx), m)
	if !ok {
		return m
	}
	own := *m
	own.Properties = props
	return &own
}

// Extract returns ctx with the context that m carries, as that of a remote span. It returns ctx if
// m has none, or one that is not valid.
func Extract(ctx context.Context, m *transport.Message) context.Context {
	if remote := remoteOf(m); remote.IsValid() {
		return trace.ContextWithRemoteSpanContext(ctx, remote)
	}
	return ctx
}

// remoteOf returns the context that m carries; one that is not valid if there is none.
func remoteOf(m *transport.Message) trace.SpanContext {
	p := properties(m.Properties)
	if p.Get(propertyParent) == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), p))
}

// with returns a copy of m's properties with the context sc in place of one that is not valid. It
// returns false if there is no context, or no room for one.
func with(sc trace.SpanContext, m *transport.Message) (copied []transport.Property, ok bool) {
	if !sc.IsValid() {
		return nil, false
	}
	var add propertyPair
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), sc), &add)
	more := len(propertyParent) + len(add.parent)
	if add.state != "" {
		more += len(propertyState) + len(add.state)
	}
	size := m.Size()
	if size+more > transport.MaxMessageSize || size-len(m.Body)+more > mostProperties {
		return nil, false
	}
	copied = make([]transport.Property, 0, len(m.Properties)+2)
	for _, p := range m.Properties {
		if !strings.EqualFold(p.Name, propertyParent) && !strings.EqualFold(p.Name, propertyState) {
			copied = append(copied, p)
		}
	}
	copied = append(copied, transport.Property{Name: propertyParent, Value: add.parent})
	if add.state != "" {
		copied = append(copied, transport.Property{Name: propertyState, Value: add.state})
	}
	return copied, true
}

// properties is the carrier of the context in a message. Names are compared without case, because
// HTTPS changes it.
type properties []transport.Property

// Get returns the value of the first property called name, empty if there is none.
func (p properties) Get(name string) string {
	for i := range p {
		if len(p[i].Name) == len(name) && strings.EqualFold(p[i].Name, name) {
			return p[i].Value
		}
	}
	return ""
}

// Set does nothing: the context is injected into a propertyPair.
func (p properties) Set(string, string) {}

// Keys returns the names.
func (p properties) Keys() []string {
	names := make([]string, len(p))
	for i := range p {
		names[i] = p[i].Name
	}
	return names
}

// propertyPair takes the context that is injected.
type propertyPair struct{ parent, state string }

func (p *propertyPair) Get(string) string { return "" }

func (p *propertyPair) Set(name, value string) {
	switch name {
	case propertyParent:
		p.parent = value
	case propertyState:
		p.state = value
	}
}

func (p *propertyPair) Keys() []string { return nil }
