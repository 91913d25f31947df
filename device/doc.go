// Package device is the client for one device. It keeps the device connected to its hub, and sends
// each message until it has a result: acknowledged, or a failure that the program sees.
//
//	creds, err := device.ParseConnectionString(s)
//	client, err := device.New(creds, mqtt.New(nil), nil)
//	err = client.Open(ctx)
//	err = client.Send(ctx, &transport.Message{Body: []byte(`{"temperature":21.5}`)})
//	err = client.Close()
//
// # Connection
//
// One goroutine per open client owns the connection. It dials and serves the session. After a
// failure it asks package errfilter whether a retry makes sense, and then the retry policy when to
// retry. Status, and the callback Options.OnStatus, report each step. A client whose retries ended,
// or that met a failure that is not retryable, is Disconnected and may be opened again. Close is
// final.
//
// # Messages
//
// Every message goes through a bounded queue in memory. A window of messages is in flight at a
// time. When the connection is lost, they are queued again at their positions, and sent again on
// the next connection, in order. So a hub may see a message twice, under the same Message.ID, but
// no message is lost while the program runs; package outbox keeps messages in files. Each accepted
// message has exactly one result:
//
//   - nil: acknowledged, or with QoS 0 written;
//   - an error of Kind Expired, Dropped or Closed;
//   - the service's refusal of this message;
//   - an error of Kind RetryExpired, when the message policy stops.
//
// Send may also end earlier: with Cancelled, Timeout, or the failure that made the client
// Disconnected.
//
// # From the hub
//
// HandleMessages, HandleDesired and HandleMethod register handlers for cloud-to-device messages,
// changes of the twin's desired properties and direct methods. They may be called at any time, and
// replace a handler or, with nil, remove it. GetTwin and PatchReported read the twin and change its
// reported properties. A program links only the features that it uses.
//
// # Concurrency
//
// All methods of Client are safe for concurrent use. OnStatus and each handler, except those of
// methods, are called by one goroutine at a time, in order, with no lock held.
//
// # Errors
//
// Failures are *transport.Error values. errors.Is(err, transport.Throttled) tests for a Kind;
// errfilter.Of(err) returns the fixed rule and its hint. A call whose context ended fails with
// transport.Cancelled, which is not retryable and has ctx.Err() and the context's cause in its
// chain.
package device
