// Package fault declares what fails at a hub of package testbroker.
//
// A [Fault] says what happens, for which device, and at which of its connects, messages, requests
// or calls. Its Kind is one of the constants below; most other fields have a useful zero value. The
// method Inject of a hub puts it in force:
//
//	lost := hub.Inject(fault.Fault{Kind: fault.DropAfterPublish, Device: "dev-1", After: 2})
//	// the third message is stored, but its sender is cut off before the PUBACK
//	err = lost.WaitFired(ctx, 1)
//
// [Kind.Protocols] returns the protocols of a kind. Text about MQTT packets applies to their
// counterparts in AMQP and HTTP:
//
//   - AMQP: the open of a connection for CONNECT and CONNACK, a telemetry message for PUBLISH, its
//     disposition for PUBACK. At the open the hub knows the device only if the client used SASL
//     PLAIN. For other clients, connect faults with Device set never happen; use the faults of a
//     put-token.
//   - HTTP: the first request of a device on a connection for CONNECT and CONNACK, a request with a
//     message or a batch for PUBLISH, and its answer for PUBACK.
//
// A device can also request a fault, with a message that has properties known to the service: see
// [MessageMode].
package fault
