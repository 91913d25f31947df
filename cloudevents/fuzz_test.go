package cloudevents_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cloudevents"
	"github.com/hubline-iot/hubline/transport"
)

// What was read as an event is valid, and is the same event after it was written and read again.
func FuzzUnmarshal(f *testing.F) {
	f.Add(
		[]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","a":true,"b":-5,"c":"\ud83d\ude00","data":{"x":[1]}}`))
	f.Add([]byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","datacontenttype":"text/xml","data":"<a\"/>"}`))
	f.Add(
		[]byte(
			`{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2016-12-31T23:59:60+01:00","data_base64":"AA=="}`))
	f.Add(
		[]byte(
			`{"specversion":"1.0","id":"1","source":"a://b@[::1]:8/c?d#e","type":"t","dataschema":"urn:x","subject":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var e, again cloudevents.Event
		if e.UnmarshalJSON(text) != nil {
			require.Zero(t, e)
			return
		}
		require.NoError(t, e.Validate())
		written, err := e.MarshalJSON()
		require.NoError(t, err)
		require.NoError(t, again.UnmarshalJSON(written))
		if len(e.Data) == 0 { // nil and an empty text are the same
			e.Data, again.Data = nil, nil
		}
		require.Equal(t, e, again)
	})
}

// A message that is opened was an event, and can be sealed again as the same event.
func FuzzOpen(f *testing.F) {
	f.Add("", "", []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t","correlationid":"x","data":1}`))
	f.Add("application/cloudevents+json", "", []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t"}`))
	f.Add("text/plain; charset=utf-8", "specversion=1.0\nid=1\nsource=/s\ntype=t\ntime=2030-01-01T00:00:00Z\nX=1",
		[]byte("x"))
	f.Add("a/b", "ce-specversion=1.0\nce-id=1\nce-source=/s\nce-type=t\nexpirytime=2030-01-01T00:00:00Z", []byte("x"))
	f.Add("", "ce-specversion=1.0\nce-id=0\nce-source=0\nce-type=0\n0=\x19", []byte("x"))
	f.Fuzz(func(t *testing.T, contentType, properties string, body []byte) {
		m := transport.Message{ContentType: contentType, Body: body}
		for line := range bytes.Lines([]byte(properties)) {
			name, value, _ := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte("="))
			m.Properties = append(m.Properties, transport.Property{Name: string(name), Value: string(value)})
		}
		event, readErr := cloudevents.Read(&m)
		before := m
		envelope.Open(&m)
		if readErr != nil {
			require.Equal(t, before, m)
			return
		}
		var attributes []transport.Property
		for _, p := range m.Properties {
			if isAttribute(p.Name) {
				attributes = append(attributes, p)
			}
		}
		m.Properties = attributes // without what others added
		var sealed transport.Message
		if err := envelope.Seal(&sealed, &m, true); err != nil {
			require.Contains(t, properties, "ce-specversion", "only properties beside those with the prefix can be bad")
			return
		}
		again, err := cloudevents.Read(&sealed)
		require.NoError(t, err)
		require.Equal(t, event.ID, again.ID)
		require.Equal(t, event.Source, again.Source)
		require.Equal(t, event.Type, again.Type)
		require.Equal(t, event.Subject, again.Subject)
		require.Equal(t, event.DataSchema, again.DataSchema)
		require.True(t, event.Time.Equal(again.Time))
		require.True(t, bytes.Equal(event.Data, again.Data))
	})
}

func isAttribute(name string) bool {
	for _, c := range name {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}
