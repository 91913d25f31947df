package cloudevents_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cloudevents"
	"github.com/hubline-iot/hubline/transport"
)

var envelope = cloudevents.Envelope{Source: "urn:site:7:boiler", Type: "com.example.reading"}

// What an Envelope sends for a message over MQTT 3.1.1. A transport calls Seal and Open.
func ExampleEnvelope() {
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
	// {"specversion":"1.0","id":"boiler-1","source":"urn:site:7:boiler","type":"com.example.reading","datacontenttype":"application/json","data":{"celsius":21.5},"zone":"7"}
	// cloudevents: "Zone": a name is of lower-case letters and digits; rename it
}

// full has all that an event has a place for.
func full() *transport.Message {
	at := time.Date(2030, 1, 2, 3, 4, 5, 600, time.UTC)
	return &transport.Message{
		ID: "1", Created: at, Expires: at.Add(time.Hour), ContentType: "text/plain", ContentEncoding: "utf-8",
		Component: "pump", CorrelationID: "k", Topic: "a/b", Retain: true, AtMostOnce: true, Body: []byte("21 °C"),
		Properties: []transport.Property{{Name: "source", Value: "urn:other"}, {Name: "type", Value: "t"},
			{Name: "dataschema", Value: "urn:s"}, {Name: "zone", Value: "7"}},
	}
}

func TestOpenReturnsWhatSealGot(t *testing.T) {
	for _, structured := range []bool{false, true} {
		for _, properties := range []bool{false, true} {
			t.Run(fmt.Sprintf("structured %v, properties %v", structured, properties), func(t *testing.T) {
				v := envelope
				v.Structured = structured
				var m transport.Message
				require.NoError(t, v.Seal(&m, full(), properties))
				if !properties { // only these are sent
					m = transport.Message{Body: m.Body, Topic: m.Topic, Retain: m.Retain, AtMostOnce: m.AtMostOnce}
				}
				v.Open(&m)
				require.Equal(t, full(), &m)
			})
		}
	}
	for _, contentType := range []string{"", "text/plain", "text/plain; charset=utf-16"} { // UTF-8 alone is a string
		binary := &transport.Message{ID: "1", ContentType: contentType, Body: []byte{0, 0xff}}
		var m transport.Message
		require.NoError(t, envelope.Seal(&m, binary, false))
		require.Contains(t, string(m.Body), `"data_base64":"AP8="`)
		envelope.Open(&m)
		require.Equal(t, binary.Body, m.Body)
	}
}

func TestSealRefusesWhatIsNoEvent(t *testing.T) {
	property := func(name, value string) transport.Property { return transport.Property{Name: name, Value: value} }
	for says, change := range map[string]func(*transport.Message){
		"id: MUST be a non-empty string": func(m *transport.Message) { m.ID = "" },
		"is there twice": func(m *transport.Message) {
			m.Properties = append(m.Properties, property("zone", "8"))
		},
		`"correlationid" is there twice`: func(m *transport.Message) {
			m.Properties = append(m.Properties, property("correlationid", "8"))
		},
		"bad key": func(m *transport.Message) { m.Properties = append(m.Properties, property("id", "8")) },
		"dataschema": func(m *transport.Message) {
			m.Properties[2].Value = "not a URI"
		},
		"not the JSON": func(m *transport.Message) { m.ContentType = "application/json" },
		"not the JSON that": func(m *transport.Message) {
			m.ContentType, m.Body = "text/json", []byte("\"\xff\"")
		},
		"ContentEncoding needs":         func(m *transport.Message) { m.ContentType = "" },
		"message Output has no place":   func(m *transport.Message) { m.Output = "o" },
		"message System has no place":   func(m *transport.Message) { m.System = new(transport.SystemProperties) },
		"message ResponseTopic has no ": func(m *transport.Message) { m.ResponseTopic = "t" },
	} {
		m := full()
		change(m)
		require.ErrorContains(t, envelope.Seal(new(transport.Message), m, false), says)
	}
	m := full()
	m.Output = "o"
	require.ErrorIs(t, envelope.Seal(new(transport.Message), m, true), transport.Unsupported)
	m = full()
	m.ResponseTopic = "t"
	require.NoError(t, envelope.Seal(new(transport.Message), m, true))
}

func TestAMessageThatIsNoEventStaysAsItIs(t *testing.T) {
	for body, properties := range map[string][]transport.Property{
		"21.5":                 nil,
		`{"celsius":21.5}`:     nil,
		`{"specversion":"1.0"`: nil,
		"x":                    {{Name: "zone", Value: "7"}},
		"y":                    {{Name: "specversion", Value: "1.0"}}, // the required attributes are missing
		// The SDK panics at these.
		`{"specversion":"1.0","data_base64":1}`:          nil,
		`{"data_base64":1,"specversion":"1.0"}`:          nil,
		`{"datacontentencoding":"","specversion":"0.3"}`: nil,
	} {
		m := &transport.Message{Body: []byte(body), Properties: properties}
		before := *m
		_, err := cloudevents.Read(m)
		require.Error(t, err)
		envelope.Open(m)
		require.Equal(t, before, *m)
	}
	_, err := cloudevents.Read(&transport.Message{Body: []byte("21.5")})
	require.ErrorIs(t, err, cloudevents.ErrNoEvent)
}

// No message makes Read panic, and what was read can be sealed and read again.
func FuzzRead(f *testing.F) {
	f.Add("", []byte(`{"specversion":"1.0","id":"c-1","source":"/s","type":"blink","data":{"times":3}}`), "", "")
	f.Add("text/plain", []byte("x"), "specversion", "1.0")
	f.Add("application/cloudevents+json", []byte(`{"specversion":"1.0","data_base64":1}`), "", "")
	f.Fuzz(func(t *testing.T, contentType string, body []byte, name, value string) {
		m := &transport.Message{ContentType: contentType, Body: body}
		if name != "" {
			m.Properties = []transport.Property{{Name: name, Value: value}, {Name: "id", Value: "1"},
				{Name: "source", Value: "/s"}, {Name: "type", Value: "t"}}
		}
		e, err := cloudevents.Read(m)
		if err != nil {
			return
		}
		envelope.Open(m)
		if m.ID != e.ID() {
			t.Fatal(m.ID, e.ID())
		}
	})
}
