package oteltrace

import (
	"context"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"go.opentelemetry.io/otel/trace"
)

// Sender is the part of *device.Client that sends.
type Sender interface {
	Enqueue(ctx context.Context, m *transport.Message, r *device.Receipt) error
	Send(ctx context.Context, m *transport.Message) error
	Flush(ctx context.Context) error
}

// Client sends messages with a span each. It is a Sender itself, and what outbox.Queue.Run needs.
type Client struct {
	tracer *Tracer
	sender Sender
}

// Client returns a Client that sends with c, a *device.Client. Messages that the program sends with
// c itself have no spans.
func (t *Tracer) Client(c Sender) *Client { return &Client{t, c} }

// Enqueue is Enqueue of the client, with a span from now to the message's result. The span of ctx
// is its parent.
func (c *Client) Enqueue(ctx context.Context, m *transport.Message, r *device.Receipt) error {
	m, span := c.tracer.begin(ctx, m)
	if span == nil {
		return c.sender.Enqueue(ctx, m, r)
	}
	if r == nil {
		r = &span.receipt
	}
	watched := c.tracer.results.Watch(r, &span.watched)
	c.tracer.follow(span, watched)
	err := c.sender.Enqueue(ctx, m, r)
	if err != nil || !watched {
		if watched {
			c.tracer.results.Unwatch(r)
		}
		c.tracer.finish(span, err, time.Now())
	}
	return err
}

// Send is Send of the client, with a span from now until it returns. The span of ctx is its parent.
func (c *Client) Send(ctx context.Context, m *transport.Message) error {
	m, span := c.tracer.begin(ctx, m)
	if span == nil {
		return c.sender.Send(ctx, m)
	}
	c.tracer.follow(span, false)
	err := c.sender.Send(ctx, m)
	c.tracer.finish(span, err, time.Now())
	return err
}

// Flush is Flush of the client.
func (c *Client) Flush(ctx context.Context) error { return c.sender.Flush(ctx) }

// begin starts the span of m if there is room for one. It returns the message to send, and the
// record of the span, nil if there is no span that records.
func (t *Tracer) begin(ctx context.Context, m *transport.Message) (*transport.Message, *message) {
	if m == nil {
		return m, nil
	}
	if t.open.Add(1) > t.most {
		t.open.Add(-1)
		t.skipped.Add(1)
		return Inject(ctx, m), nil
	}
	sent, record := t.start(ctx, m)
	if record == nil {
		t.open.Add(-1)
	}
	return sent, record
}

// start is begin where there is room.
func (t *Tracer) start(ctx context.Context, m *transport.Message) (*transport.Message, *message) {
	remote := remoteOf(m)
	name, options := "send "+events, t.telemetry
	if m.Output != "" || remote.IsValid() || m.Topic != "" {
		destination, kind := events, trace.SpanKindProducer
		if m.Output != "" {
			destination = outputs + m.Output
		}
		name = "send " + destination
		if m.Topic != "" {
			name, destination = "send", m.Topic // topics are too many for names of spans
		}
		if remote.IsValid() {
			kind = trace.SpanKindClient
		}
		options = t.sendOptions(destination, kind)
		if remote.IsValid() {
			options = append(options, trace.WithLinks(trace.Link{SpanContext: remote}))
			if !trace.SpanContextFromContext(ctx).IsValid() {
				ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
			}
		}
	}
	start := time.Now()
	_, span := t.tracer.Start(ctx, name, options...)
	own, recording := span.SpanContext(), span.IsRecording()
	if !recording && (!own.IsValid() || remote.IsValid()) {
		return m, nil
	}
	var props []transport.Property
	if remote.IsValid() {
		props = slices.Clone(m.Properties) // so that its first one identifies this message
	} else if added, ok := with(own, m); ok {
		props = added
	} else {
		props = slices.Clone(m.Properties)
	}
	copied := *m
	copied.Properties = props
	if !recording {
		return &copied, nil
	}
	span.SetAttributes(described(m)...)
	record := &message{span: span, start: start, key: keyOf(&copied)}
	record.watched.Value = record
	return &copied, record
}
