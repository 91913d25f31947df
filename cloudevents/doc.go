// Package cloudevents reads and writes CloudEvents 1.0, in the two modes that MQTT has for them:
// structured, where the payload is one JSON object with attributes and data, and binary, where the
// payload is the data and the attributes are user properties of MQTT 5.
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
// A program with events of its own marshals an Event with encoding/json and sends it as the body of
// a message with the content type ContentType, over any transport, or sends Event.Message through
// an Envelope. Read returns the event in a message that came. To a hub, such a message may have all
// that other messages have: an Output, whose route passes the event on to a module, and System.
//
// Values are checked on both ways, by the rules of the specification; an *AttributeError names the
// attribute. Batches and formats other than JSON are not read. All functions may be called
// concurrently. It is not for boards.
//
// Source: CloudEvents 1.0.2, spec.md, formats/json-format.md, bindings/mqtt-protocol-binding.md;
// extensions/correlation.md and extensions/expirytime.md.
package cloudevents
