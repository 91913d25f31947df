package otelmetrics

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hubline-iot/hubline/observe/otel/internal/tap"
	"github.com/hubline-iot/hubline/transport"
)

// KeyErrorType is the attribute with the Kind of a failure, as OpenTelemetry names it.
const KeyErrorType = attribute.Key("error.type")

// latencyBounds are the buckets of acknowledgements, in seconds: from a hub nearby to a retry after
// a lost connection.
var latencyBounds = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// Transport returns a Transport around inner for device.New. It records what counters do not show:
// how long the hub takes to acknowledge, and why it refuses messages and connections. That costs a
// lock and an entry of a map for each message. Where packages dpstransport or dpscert make
// transports, put it around those that they are given.
func Transport(p metric.MeterProvider, attrs []attribute.KeyValue, inner transport.Transport) (transport.Transport,
	error) {
	m := p.Meter(Scope)
	r := &recorder{attrs: slices.Clone(attrs)}
	var errs [3]error
	r.latency, errs[0] = m.Float64Histogram("hubline.client.ack.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the hand-over of a message to its acknowledgement."),
		metric.WithExplicitBucketBoundaries(latencyBounds...))
	r.refusals, errs[1] = m.Int64Counter("hubline.client.messages.refusals", metric.WithUnit("{refusal}"),
		metric.WithDescription("Refusals of messages, for now or for good, by kind."))
	r.failures, errs[2] = m.Int64Counter("hubline.client.connection.failures", metric.WithUnit("{failure}"),
		metric.WithDescription("Attempts to connect that failed, and connections that were lost, by kind."))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	r.plain = metric.WithAttributeSet(attribute.NewSet(r.attrs...))
	return tap.Transport(inner, func(*transport.Credentials) tap.Session {
		return &sent{recorder: r, at: map[uint16]time.Time{}}
	}), nil
}

// recorder has the instruments. It is immutable.
type recorder struct {
	attrs              []attribute.KeyValue
	plain              metric.MeasurementOption
	latency            metric.Float64Histogram
	refusals, failures metric.Int64Counter
}

func (r *recorder) of(err error) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(slices.Clone(r.attrs),
		KeyErrorType.String(transport.KindOf(err).String()))...))
}

// sent knows when the messages of a session were handed over.
type sent struct {
	*recorder
	mu sync.Mutex
	at map[uint16]time.Time // by tag
}

func (s *sent) Send(batch []transport.Item) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		s.at[batch[i].Tag] = now
	}
}

func (s *sent) Done(tag uint16, err error) {
	s.mu.Lock()
	at, ok := s.at[tag]
	delete(s.at, tag)
	s.mu.Unlock()
	switch {
	case errors.Is(err, transport.ErrWritten): // QoS 0 has no acknowledgement
	case err != nil:
		s.refusals.Add(context.Background(), 1, s.of(err))
	case ok:
		s.latency.Record(context.Background(), time.Since(at).Seconds(), s.plain)
	}
}

func (s *sent) End(err error, planned bool) {
	if err != nil && !planned {
		s.failures.Add(context.Background(), 1, s.of(err))
	}
}
