package oteltrace

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Scope is the name of the tracer that New uses.
const Scope = "github.com/hubline-iot/hubline/observe/otel/oteltrace"

// Keys of the attributes that are this package's own.
const (
	KeyAttempts       = attribute.Key("hubline.message.attempts")
	KeyQueued         = attribute.Key("hubline.message.queued")
	KeyOutcomeUnknown = attribute.Key("hubline.message.outcome_unknown")
	KeyVerdict        = attribute.Key("hubline.client.verdict")
)

// Options tune a Tracer. Nil, and the zero value of each field, select the stated default.
type Options struct {
	// System is the attribute messaging.system. Default "iothub".
	System string
	// Attributes are added to every span. Default: none.
	Attributes []attribute.KeyValue
	// MaxSpans limits the number of messages with spans that have not ended: those without a result,
	// and those whose spans wait for the exporter. Further messages are sent without a span of their
	// own; Skipped counts them. Zero and less select the default, 8,192, which is twice the default
	// of device.Options.MaxMessages. A Tracer that serves many clients may need more.
	MaxSpans int
}

// maxSpans is the default of Options.MaxSpans.
const maxSpans = 8192

// Tracer makes spans. One Tracer may serve many clients; all methods are safe for concurrent use.
// It runs one goroutine while messages that were enqueued have no result yet, which Client.Close
// gives to all of them.
type Tracer struct {
	tracer    trace.Tracer
	attrs     []attribute.KeyValue    // of every span
	telemetry []trace.SpanStartOption // of messages to no output

	results *device.Results
	wake    chan struct{} // capacity 1: waiting may have become 0
	ending  chan struct{} // capacity 1: a lock, held while spans end

	most    int64
	open    atomic.Int64  // messages with a span, at most most of them
	skipped atomic.Uint64 // messages without one because of most

	traced atomic.Int32 // size of live, so that other messages need no lock

	mu      sync.Mutex
	live    map[key]*message
	waiting int  // messages whose result comes through results
	running bool // the goroutine
}

// New returns a Tracer that makes its spans with p. o may be nil.
func New(p trace.TracerProvider, o *Options) *Tracer {
	if o == nil {
		o = &Options{}
	}
	system := o.System
	if system == "" {
		system = "iothub"
	}
	t := &Tracer{
		tracer:  p.Tracer(Scope, trace.WithSchemaURL(semconv.SchemaURL)),
		attrs:   append(slices.Clone(o.Attributes), semconv.MessagingSystemKey.String(system)),
		results: device.NewResults(),
		wake:    make(chan struct{}, 1),
		ending:  make(chan struct{}, 1),
		live:    map[key]*message{},
		most:    int64(o.MaxSpans),
	}
	if t.most <= 0 {
		t.most = maxSpans
	}
	t.telemetry = t.sendOptions(events, trace.SpanKindProducer)
	return t
}

// Skipped returns how many messages were sent without a span because Options.MaxSpans others had
// one. A number that grows tells that the exporter is too slow, or MaxSpans too low for what the
// clients' queues hold.
func (t *Tracer) Skipped() uint64 { return t.skipped.Load() }

// Destinations, as a hub's documentation names them.
const (
	events      = "messages/events"
	deviceBound = "messages/devicebound"
	outputs     = "outputs/"
	inputs      = "inputs/"
)

// options returns the options of a span of this kind.
func (t *Tracer) options(kind trace.SpanKind, attrs ...attribute.KeyValue) []trace.SpanStartOption {
	return []trace.SpanStartOption{trace.WithSpanKind(kind),
		trace.WithAttributes(append(slices.Clone(t.attrs), attrs...)...)}
}

func (t *Tracer) sendOptions(destination string, kind trace.SpanKind) []trace.SpanStartOption {
	return t.options(kind, semconv.MessagingOperationName("send"), semconv.MessagingOperationTypeSend,
		semconv.MessagingDestinationName(destination))
}

// described returns the attributes of m for its span.
func described(m *transport.Message) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, 8)
	attrs = append(attrs, semconv.MessagingMessageBodySize(len(m.Body)))
	if m.ID != "" {
		attrs = append(attrs, semconv.MessagingMessageID(m.ID))
	}
	if m.CorrelationID != "" {
		attrs = append(attrs, semconv.MessagingMessageConversationID(m.CorrelationID))
	}
	if m.Topic != "" {
		attrs = append(attrs, semconv.MessagingDestinationName(m.Topic))
	}
	return attrs
}
