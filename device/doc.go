// Package device is the client that a program holds for one device: it keeps the device connected
// to its hub and gets every message there at least once.
//
//	creds, err := device.ParseConnectionString(s)
//	client, err := device.New(creds, mqtt.New(nil), nil)
//	err = client.Open(ctx)
//	err = client.Send(ctx, &transport.Message{Body: []byte(`{"temperature":21.5}`)})
//	err = client.Close()
//
// # Connection
//
// One goroutine per open client owns the connection. It dials, serves the session, and after a
// failure asks package errfilter whether a retry makes sense and then the retry policy when;
// Status, and the function in Options.OnStatus, tell each step. A client whose retries ended, or
// that met a failure no retry can mend, is Disconnected: it may be opened again. Close is final.
//
// # Messages
//
// Every message goes through the outbox, a bounded queue in memory. A window of messages is in
// flight at a time. When the connection is lost, they go back to the front, in order, and are sent
// again on the next one. So a hub may see a message twice, under the same Message.ID, but none is
// lost while the program runs; package outbox keeps messages in files. Each accepted message has
// exactly one result: acknowledged (nil), or an error of Kind Expired, Dropped or Closed, or the
// service's refusal of this one message, or, when the message policy stops, RetryExpired.
//
// # From the hub
//
// HandleMessages, HandleDesired and HandleMethod register handlers for cloud-to-device messages,
// changes of the twin's desired properties and direct methods. They may be called at any time, and
// replace or, with nil, remove a handler. GetTwin and PatchReported read the twin and change its
// reported properties. A program links only the features that it uses.
//
// # Concurrency
//
// All methods of Client may be called by any number of goroutines at a time. OnStatus and each
// handler but those of methods are called by one goroutine at a time, in order, with no lock held.
//
// # Errors
//
// Failures are *transport.Error values; errors.Is(err, transport.Throttled) asks for a Kind,
// errfilter.Of(err) for the fixed rule and its hint. A call whose context ended fails with
// transport.Cancelled, which is not retryable and has ctx.Err() and the context's cause in its
// chain.
package device
