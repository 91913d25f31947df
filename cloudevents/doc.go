// Package cloudevents carries CloudEvents 1.0 over MQTT with the CloudEvents SDK for Go, in the two
// modes that MQTT has for them: structured, where the payload is one JSON object with attributes
// and data, and binary, where the payload is the data and the attributes are user properties of
// MQTT 5.
//
// A program that sends transport.Messages needs no change. An Envelope in the topic map makes them
// events, binary over MQTT 5 and structured over MQTT 3.1.1, and opens those that come:
//
//	topics := &mqtt.Topics{
//		Telemetry: "site/{device}/up",
//		Commands:  []string{"site/{device}/down/#"},
//		Envelope:  cloudevents.Envelope{Source: "urn:site:7:boiler", Type: "com.example.reading"},
//	}
//
// A program with events of its own sends the JSON of an event.Event as the body of a message with
// the content type event.ApplicationCloudEventsJSON, over any transport. Read returns the event in
// a message that came.
//
// The package is a module of its own, so that the SDK is linked by its users alone. All functions
// may be called concurrently.
//
// Source: CloudEvents 1.0.2, bindings/mqtt-protocol-binding.md; extensions/correlation.md and
// extensions/expirytime.md.
package cloudevents
