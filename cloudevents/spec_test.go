package cloudevents_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cloudevents"
	"github.com/hubline-iot/hubline/transport"
)

// head is what the examples of the JSON format have in common.
const head = `{"specversion":"1.0","type":"com.example.someevent","source":"/mycontext",` +
	`"time":"2018-04-05T17:31:00Z","comexampleextension1":"value","comexampleothervalue":5,`

func example(id, contentType, data string) cloudevents.Event {
	e := cloudevents.Event{
		ID: id, Source: "/mycontext", Type: "com.example.someevent", Time: time.Date(2018, 4, 5, 17, 31, 0, 0, time.UTC),
		DataContentType: contentType,
		Extensions:      map[string]any{"comexampleextension1": "value", "comexampleothervalue": int32(5)},
	}
	if data != "" {
		e.Data = []byte(data)
	}
	return e
}

// The examples of the specification, spec.md and formats/json-format.md 3.2, both ways.
func TestTheExamplesOfTheJSONFormat(t *testing.T) {
	pull := example("A234-1234-1234", "text/xml", `<much wow="xml"/>`)
	pull.Source, pull.Subject, pull.Type = "https://github.com/cloudevents/spec/pull", "123",
		"com.github.pull_request.opened"
	for _, c := range []struct {
		name, text string
		want       cloudevents.Event
	}{
		{"spec.md", `{"specversion":"1.0","type":"com.github.pull_request.opened",` +
			`"source":"https://github.com/cloudevents/spec/pull","subject":"123","id":"A234-1234-1234",` +
			`"time":"2018-04-05T17:31:00Z","comexampleextension1":"value","comexampleothervalue":5,` +
			`"datacontenttype":"text/xml","data":"<much wow=\"xml\"/>"}`, pull},
		{"binary data", head + `"id":"A234-1234-1234","datacontenttype":"application/vnd.apache.thrift.binary",` +
			`"data_base64":"AAEC/w=="}`,
			example("A234-1234-1234", "application/vnd.apache.thrift.binary", "\x00\x01\x02\xff")},
		{"XML as a string", head + `"id":"B234-1234-1234","unsetextension":null,"datacontenttype":"application/xml",` +
			`"data":"<much wow=\"xml\"/>"}`, example("B234-1234-1234", "application/xml", `<much wow="xml"/>`)},
		{"JSON object", head + `"subject":null,"id":"C234-1234-1234","datacontenttype":"application/json",` +
			`"data":{ "appinfoA" : "abc", "appinfoB" : 123, "appinfoC" : true }}`,
			example("C234-1234-1234", "application/json", `{ "appinfoA" : "abc", "appinfoB" : 123, "appinfoC" : true }`)},
		{"JSON number", head + `"subject":null,"id":"C234-1234-1234","datacontenttype":"application/json","data":1.5}`,
			example("C234-1234-1234", "application/json", `1.5`)},
		{"a string without content type is JSON", head + `"subject":null,"id":"D234-1234-1234","data":"I'm just a string"}`,
			example("D234-1234-1234", "application/json", `"I'm just a string"`)},
		{"base64 without content type stays binary",
			`{"specversion":"1.0","type":"com.example.someevent","source":"/mycontext","id":"D234-1234-1234",` +
				`"data_base64":"eyAieHl6IjogMTIzIH0="}`,
			cloudevents.Event{ID: "D234-1234-1234", Source: "/mycontext", Type: "com.example.someevent",
				Data: []byte(`{ "xyz": 123 }`)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got cloudevents.Event
			require.NoError(t, json.Unmarshal([]byte(c.text), &got))
			require.Equal(t, c.want, got)
			text, err := json.Marshal(got)
			require.NoError(t, err)
			var again cloudevents.Event
			require.NoError(t, json.Unmarshal(text, &again))
			require.Equal(t, compact(t, got), compact(t, again))
			require.JSONEq(t, withoutNulls(t, c.text, got.DataContentType), string(text))
		})
	}
}

// compact returns e with JSON data as json.Marshal leaves it.
func compact(t *testing.T, e cloudevents.Event) cloudevents.Event {
	t.Helper()
	if e.DataContentType == "application/json" {
		var v any
		require.NoError(t, json.Unmarshal(e.Data, &v))
		data, err := json.Marshal(v)
		require.NoError(t, err)
		e.Data = data
	}
	return e
}

// withoutNulls returns the event as it is written: without unset attributes, and with the content
// type that was implied.
func withoutNulls(t *testing.T, text, contentType string) string {
	t.Helper()
	var members map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &members))
	for name, value := range members {
		if value == nil {
			delete(members, name)
		}
	}
	if contentType != "" {
		members["datacontenttype"] = contentType
	}
	out, err := json.Marshal(members)
	require.NoError(t, err)
	return string(out)
}

// The event of the binding's examples: mqtt-protocol-binding.md 3.1.4 and 3.2.4, with times and ids
// that are JSON, and the scenarios of the project's conformance suite for other protocols.
func TestTheExamplesOfTheMQTTBinding(t *testing.T) {
	const payload = `{"message": "Hello World!"}`
	attributes := []transport.Property{
		{Name: "specversion", Value: "1.0"}, {Name: "type", Value: "com.example.someevent"},
		{Name: "time", Value: "2018-04-05T03:56:24Z"}, {Name: "id", Value: "1234-1234-1234"},
		{Name: "source", Value: "/mycontext/subcontext"},
	}
	structured := func(contentType string) string {
		return `{"specversion": "1.0", "type": "com.example.someevent", "time": "2018-04-05T03:56:24Z",
			"id": "1234-1234-1234", "source": "/mycontext/subcontext", "datacontenttype": "` + contentType + `",
			"data": ` + payload + `}`
	}
	for _, contentType := range []string{"application/json", "application/json; charset=utf-8"} {
		want := cloudevents.Event{
			ID: "1234-1234-1234", Source: "/mycontext/subcontext", Type: "com.example.someevent",
			Time: time.Date(2018, 4, 5, 3, 56, 24, 0, time.UTC), DataContentType: contentType, Data: []byte(payload),
		}
		for _, c := range []struct {
			name string
			m    transport.Message
		}{
			{"binary", transport.Message{ContentType: contentType, Properties: attributes, Body: []byte(payload)}},
			{"binary, content type also as a property", transport.Message{ContentType: contentType, Properties: append(
				attributes[:len(attributes):len(attributes)], transport.Property{Name: "datacontenttype", Value: "text/other"}),
				Body: []byte(payload)}},
			{"structured", transport.Message{ContentType: "application/cloudevents+json",
				Body: []byte(structured(contentType))}},
			{"structured, with a character set", transport.Message{ContentType: "application/cloudevents+json; charset=utf-8",
				Body: []byte(structured(contentType))}},
			{"structured, in capital letters", transport.Message{ContentType: "Application/CloudEvents+JSON",
				Body: []byte(structured(contentType))}},
			{"structured, with copies of the attributes", transport.Message{ContentType: "application/cloudevents+json",
				Properties: attributes, Body: []byte(structured(contentType))}},
			{"MQTT 3.1.1", transport.Message{Body: []byte(structured(contentType))}},
		} {
			got, err := cloudevents.Read(&c.m)
			require.NoError(t, err, c.name)
			require.Equal(t, want, got, c.name)
		}
	}
}

// The events of the project's conformance suite: yaml/v1.0/v1_minimum.yaml, yaml/v1.yaml.
func TestTheEventsOfTheConformanceSuite(t *testing.T) {
	const source = "//github.com/cloudevents/cloudeventsconformance/yaml/v1.yaml"
	minimum := func(id, contentType, data string) cloudevents.Event {
		return cloudevents.Event{ID: id, Source: source, Type: "io.cloudevents.minimum", DataContentType: contentType,
			Data: []byte(data)}
	}
	for _, e := range []cloudevents.Event{
		minimum("conformance-0001", "text/plain; charset=us-ascii", "Hello, World!\n"),
		minimum("conformance-0002", "text/plain; charset=utf-8", "Hello, 🌎!\n"),
		minimum("conformance-0003", "application/json; charset=utf-8", `"Hello, 🌎!"`),
		minimum("conformance-0004", "application/json; charset=utf-8", `{"msg":"Hello, 🌎!"}`),
		minimum("conformance-0005", "application/json; charset=utf-8", `["Hello","🌎!"]`),
		minimum("conformance-0006", "application/xml; charset=utf-8", "<msg>Hello, 🌎!</msg>\n"),
		{ID: "4321-4321-4321", Source: "/mycontext/subcontext", Type: "com.example.someevent",
			Time: time.Date(2018, 4, 5, 3, 56, 24, 0, time.UTC), DataContentType: "application/json",
			Extensions: map[string]any{"comexampleextension1": "value", "comexampleextension2": `{"othervalue": 5}`},
			Data:       []byte(`{"world":"hello"}`)},
	} {
		text, err := e.MarshalJSON()
		require.NoError(t, err)
		var got cloudevents.Event
		require.NoError(t, got.UnmarshalJSON(text))
		require.Equal(t, e, got, "JSON")

		m, err := e.Message()
		require.NoError(t, err)
		for _, v := range []cloudevents.Envelope{{}, {Structured: true}} {
			for _, properties := range []bool{false, true} {
				var sealed transport.Message
				require.NoError(t, v.Seal(&sealed, m, properties))
				got, err := cloudevents.Read(&sealed)
				require.NoError(t, err)
				require.Equal(t, e, got, "%+v, properties %t", v, properties)
			}
		}
	}
}
