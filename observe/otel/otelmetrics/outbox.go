package otelmetrics

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/hubline-iot/hubline/outbox"
)

// Outbox is the part of *outbox.Queue that is observed. It is safe for concurrent use.
type Outbox interface{ Stats() outbox.Stats }

// RegisterOutbox makes p observe an outbox until unregister is called, as Register does clients.
func RegisterOutbox(p metric.MeterProvider, attrs []attribute.KeyValue, q Outbox) (unregister func() error, err error) {
	m := p.Meter(Scope)
	var errs []error
	var all []metric.Observable
	note := func(o metric.Observable, err error) {
		all, errs = append(all, o), append(errs, err)
	}
	var sums []metric.Int64Observable
	for _, c := range outboxCounters {
		i, err := m.Int64ObservableCounter(c.name, metric.WithUnit(c.unit), metric.WithDescription(c.text))
		note(i, err)
		sums = append(sums, i)
	}
	for _, l := range outboxLevels {
		i, err := m.Int64ObservableUpDownCounter(l.name, metric.WithUnit(l.unit), metric.WithDescription(l.text))
		note(i, err)
		sums = append(sums, i)
	}
	stalled, err := m.Float64ObservableGauge("hubline.outbox.stalled", metric.WithUnit("s"),
		metric.WithDescription("For how long the same message has been the first that waits; else 0."))
	note(stalled, err)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	with := metric.WithAttributeSet(attribute.NewSet(slices.Clone(attrs)...))
	rows := slices.Concat(outboxCounters, outboxLevels)
	r, err := m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		s := q.Stats()
		for i, row := range rows {
			o.ObserveInt64(sums[i], row.value(&s), with)
		}
		o.ObserveFloat64(stalled, s.Stalled.Seconds(), with)
		return nil
	}, all...)
	if err != nil {
		return nil, err
	}
	return r.Unregister, nil
}

type outboxRow struct {
	name, unit, text string
	value            func(*outbox.Stats) int64
}

var outboxCounters = []outboxRow{
	{"hubline.outbox.put", "{message}", "Messages put.", func(s *outbox.Stats) int64 { return int64(s.Put) }},
	{"hubline.outbox.acknowledged", "{message}", "Messages of the outbox that the hub acknowledged.",
		func(s *outbox.Stats) int64 { return int64(s.Acknowledged) }},
	{"hubline.outbox.lost", "{message}", "Messages that failed, were dropped by the limit, or are damaged.",
		func(s *outbox.Stats) int64 { return int64(s.Failed + s.Dropped + s.Damaged) }},
}

var outboxLevels = []outboxRow{
	{"hubline.outbox.size", "{message}", "Messages that wait.", func(s *outbox.Stats) int64 { return int64(s.Waiting) }},
	{"hubline.outbox.bytes", "By", "Size of the files.", func(s *outbox.Stats) int64 { return s.Bytes }},
}
