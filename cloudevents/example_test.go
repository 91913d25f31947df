package cloudevents_test

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/cloudevents"
	"github.com/hubline-iot/hubline/transport"
)

// What an Envelope sends for a message over MQTT 3.1.1. A transport calls Seal and Open.
func ExampleEnvelope() {
	envelope := cloudevents.Envelope{Source: "urn:site:7:boiler", Type: "com.example.reading"}
	reading := &transport.Message{
		ID: "boiler-1", ContentType: "application/json", Body: []byte(`{"celsius":21.5}`),
		Properties: []transport.Property{{Name: "zone", Value: "7"}},
	}
	var sealed transport.Message
	if err := envelope.Seal(&sealed, reading, false); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%s\n", sealed.Body)

	reading.Properties[0].Name = "Zone"
	fmt.Println(envelope.Seal(&sealed, reading, false))
	// Output:
	// {"specversion":"1.0","id":"boiler-1","source":"urn:site:7:boiler","type":"com.example.reading","datacontenttype":"application/json","zone":"7","data":{"celsius":21.5}}
	// cloudevents: Zone: a name is of lower-case letters and digits; rename it
}

// An Event as the body of a message over any transport, an IoT Hub's included.
func ExampleEvent() {
	event := cloudevents.Event{
		ID: "boiler-1", Source: "urn:site:7:boiler", Type: "com.example.reading",
		Time:            time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC),
		DataContentType: "text/plain", Data: []byte("21.5"),
		Extensions: map[string]any{"sequence": 1},
	}
	body, err := json.Marshal(event)
	fmt.Println(string(body), err)
	m := &transport.Message{ContentType: cloudevents.ContentType, Body: body}

	received, err := cloudevents.Read(m)
	fmt.Printf("%s %s %v\n", received.Type, received.Data, err)
	// Output:
	// {"specversion":"1.0","id":"boiler-1","source":"urn:site:7:boiler","type":"com.example.reading","time":"2030-01-01T12:00:00Z","datacontenttype":"text/plain","sequence":1,"data":"21.5"} <nil>
	// com.example.reading 21.5 <nil>
}
