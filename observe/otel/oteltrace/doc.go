// Package oteltrace reports messages, and the handlers of what a hub sends, as OpenTelemetry spans,
// and carries the trace context of the W3C in the messages' properties. It depends on
// OpenTelemetry's API only; the program supplies the SDK. It is in a separate module, so that only
// programs that use it depend on OpenTelemetry.
//
//	tracer := oteltrace.New(provider, nil)
//	client, err := device.New(creds, tracer.Transport(mqtt.New(nil)), nil)
//	sender := tracer.Client(client)
//	err = client.Open(ctx)
//	err = sender.Send(ctx, &transport.Message{Body: reading}) // or sender.Enqueue
//	client.HandleMessages(tracer.Messages(handle))
//
// # Spans
//
//	send messages/events              PRODUCER  a message, from Enqueue or Send to its result
//	send outputs/NAME                 PRODUCER  a message of a module to this output
//	attempt                           CLIENT    one hand-over to a connection, see below
//	process messages/devicebound      CONSUMER  a run of the handler of Messages
//	process inputs/NAME               CONSUMER  the same, for a message of a module's input
//	direct method                     SERVER    a run of the handler of Method
//
// A message that is handed to one connection and answered there has one span. A message that is
// handed over again, because its connection was lost or the hub refused it for now, has one child
// span for each attempt, which links to the attempt before. Each copy of the message carries the
// context of the same parent, so a consumer of duplicates finds them in one trace. Only the last
// 128 attempts become spans; hubline.message.attempts counts all.
//
// A message that has a trace context, such as one that the program forwards, keeps it. Its span is
// of kind CLIENT and links to that context, which is also the parent if ctx has no span. A message
// of package outbox gets its context where it is put into the queue, with Inject: the program that
// sends it may be another one.
//
// A handler's span has the message's context as its parent and as a link. ctx of the handler has
// the span, so what the handler sends belongs to the same trace.
//
// # Attributes
//
// Names are those of the semantic conventions for messaging, version 1.43.0, and the package's own:
//
//	messaging.system                     Options.System
//	messaging.operation.name             send, attempt, process
//	messaging.operation.type             send, process
//	messaging.destination.name           as in the span's name, or the message's Topic
//	messaging.message.id                 the message's, or the one that the client gave it
//	messaging.message.conversation_id    Message.CorrelationID
//	messaging.message.body.size          in bytes
//	messaging.client.id                  the device, DEVICE/MODULE for a module
//	server.address                       the host that is dialed: the gateway if there is one
//	error.type                           the transport.Kind of a failure; panic, _OTHER, a status
//	hubline.message.attempts             how often the message was handed to a connection
//	hubline.message.queued               seconds until it was first handed over
//	hubline.message.outcome_unknown      true: the hub may have the message although it failed
//	hubline.client.verdict               of a handler: accepted, released, rejected
//	rpc.method, rpc.response.status_code of a direct method
//
// The client's id, the server's address, generated message ids and the last two attributes of
// messages are known only with Transport. A failed span has the status Error with the text of the
// error, in which Hubline shows no secrets.
//
// # Messages
//
// The context is in the application properties "traceparent" and "tracestate". It is put into a
// copy of the message: neither the Message nor the slice of its Properties is changed, and the rule
// that both stay unchanged until the result holds as without traces. The copy is at least 66 bytes
// larger. A message that it would make too large for a hub is sent without a context.
//
// # Costs
//
// With a provider that records nothing and a context without a span, a message costs one
// allocation, which the API makes. Where a sampler drops a span, its context is still carried, as
// the W3C wants, so that back ends do not sample the trace either: with the copy of the message and
// the SDK's own that is nine allocations. The client itself allocates nothing more.
//
// The body and the properties leave memory with the message's result, also where the span waits
// for the exporter. Until it ends, a span holds about 1.5 KB with the SDK, the texts of its
// attributes, and 72 bytes for each attempt, of which it keeps 128. At most Options.MaxSpans
// messages (8,192) have such spans, which is about 12 MB. Further messages are sent without a span
// of their own, with the context of the span in ctx, and Tracer.Skipped counts them.
//
// The spans of Enqueue end on a goroutine of the Tracer, so an exporter that blocks delays neither
// Enqueue nor the client. Send ends its span before it returns, and Enqueue does if it refuses the
// message: use a span processor that does not block, such as the SDK's batcher.
package oteltrace
