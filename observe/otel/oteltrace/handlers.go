package oteltrace

import (
	"context"
	"errors"
	"strconv"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Messages returns a handler for Client.HandleMessages and HandleInput that runs handle in a span
// of kind CONSUMER. The context that the message carries is its parent, and a link. It returns nil
// for nil.
func (t *Tracer) Messages(handle device.MessageHandler) device.MessageHandler {
	if handle == nil {
		return nil
	}
	return func(ctx context.Context, m *transport.Message) (err error) {
		destination := deviceBound
		if m.Input != "" {
			destination = inputs + m.Input
		}
		name := "process " + destination
		if m.Topic != "" {
			name, destination = "process", m.Topic
		}
		options := t.options(trace.SpanKindConsumer, semconv.MessagingOperationName("process"),
			semconv.MessagingOperationTypeProcess, semconv.MessagingDestinationName(destination))
		if remote := remoteOf(m); remote.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, remote)
			options = append(options, trace.WithLinks(trace.Link{SpanContext: remote}))
		}
		ctx, span := t.tracer.Start(ctx, name, options...)
		if span.IsRecording() {
			span.SetAttributes(described(m)...)
		}
		returned := false
		defer func() { // also when handle panics or ends its goroutine
			if !returned {
				err = errNotReturned
			}
			span.SetAttributes(KeyVerdict.String(verdict(err)))
			failed(span, err)
			span.End()
		}()
		err = handle(ctx, m)
		returned = true
		return err
	}
}

// errNotReturned is what a span says of a handler that did not return.
var errNotReturned = errors.New("the handler panicked or ended its goroutine")

// verdict is what the client makes of a handler's error.
func verdict(err error) string {
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, device.ErrReject):
		return "rejected"
	}
	return "released"
}

// Method returns a handler for Client.HandleMethod that runs handle in a span of kind SERVER. A
// call of a direct method carries no trace context, so the span begins a trace. A status of 500 and
// above is an error. It returns nil for nil.
func (t *Tracer) Method(handle device.MethodHandler) device.MethodHandler {
	if handle == nil {
		return nil
	}
	return func(ctx context.Context, m *device.MethodCall) (status int, body []byte) {
		ctx, span := t.tracer.Start(ctx, "direct method",
			t.options(trace.SpanKindServer, semconv.RPCMethod(m.Name))...)
		returned := false
		defer func() {
			switch {
			case !returned:
				failed(span, errNotReturned)
			case status >= 500:
				span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
				span.SetStatus(codes.Error, "")
			}
			if returned {
				span.SetAttributes(semconv.RPCResponseStatusCode(strconv.Itoa(status)))
			}
			span.End()
		}()
		status, body = handle(ctx, m)
		returned = true
		return status, body
	}
}
