package cloudevents_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/cloudevents"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/transport/mqtt/dialect"
)

var _ dialect.Envelope = cloudevents.Envelope{}

var envelope = cloudevents.Envelope{Source: "urn:site:7:boiler", Type: "com.example.reading"}

// full has every field that an event can hold.
func full() *transport.Message {
	return &transport.Message{
		ID: "boiler-1", CorrelationID: "c-9", ContentType: "application/json", ContentEncoding: "utf-8",
		Component: "burner", Created: time.Date(2030, 1, 2, 3, 4, 5, 678e6, time.UTC),
		Expires:    time.Date(2030, 1, 2, 4, 0, 0, 0, time.UTC),
		Properties: []transport.Property{{Name: "level", Value: "high"}, {Name: "zone", Value: "7 \"a\""}, {Name: "empty"}},
		Body:       []byte(`{"celsius":21.5}`), Topic: "site/7/alarm", ResponseTopic: "site/7/answers", Retain: true,
		AtMostOnce: true,
	}
}

func TestTheBinaryModeHasAttributesAsUserProperties(t *testing.T) {
	var got transport.Message
	require.NoError(t, envelope.Seal(&got, full(), true))
	require.Equal(t, transport.Message{
		CorrelationID: "c-9", ContentType: "application/json; charset=utf-8", ContentEncoding: "utf-8",
		Expires: full().Expires, Body: full().Body, Topic: "site/7/alarm", ResponseTopic: "site/7/answers", Retain: true,
		AtMostOnce: true,
		Properties: []transport.Property{
			{Name: "specversion", Value: "1.0"}, {Name: "id", Value: "boiler-1"}, {Name: "source", Value: "urn:site:7:boiler"},
			{Name: "type", Value: "com.example.reading"}, {Name: "subject", Value: "burner"},
			{Name: "time", Value: "2030-01-02T03:04:05.678Z"}, {Name: "correlationid", Value: "c-9"},
			{Name: "expirytime", Value: "2030-01-02T04:00:00Z"},
			{Name: "level", Value: "high"}, {Name: "zone", Value: "7 \"a\""}, {Name: "empty"},
		},
	}, got)
}

func TestTheStructuredModeIsOneJSONObject(t *testing.T) {
	const want = `{"specversion":"1.0","id":"boiler-1","source":"urn:site:7:boiler","type":"com.example.reading",` +
		`"subject":"burner","time":"2030-01-02T03:04:05.678Z","datacontenttype":"application/json; charset=utf-8",` +
		`"correlationid":"c-9","expirytime":"2030-01-02T04:00:00Z","level":"high","zone":"7 \"a\"","empty":"",` +
		`"data":{"celsius":21.5}}`
	structured := envelope
	structured.Structured = true
	for _, c := range []struct {
		v          cloudevents.Envelope
		properties bool
	}{{envelope, false}, {structured, false}, {structured, true}} {
		var got transport.Message
		m := full()
		if !c.properties {
			m.ResponseTopic = ""
		}
		require.NoError(t, c.v.Seal(&got, m, c.properties))
		require.Equal(t, want, string(got.Body))
		require.Equal(t, transport.Message{
			CorrelationID: "c-9", ContentType: cloudevents.ContentType, ContentEncoding: "utf-8", Expires: full().Expires,
			Body: got.Body, Topic: "site/7/alarm", ResponseTopic: m.ResponseTopic, Retain: true, AtMostOnce: true,
		}, got)
	}
	var dst transport.Message
	err := envelope.Seal(&dst, full(), false)
	require.ErrorIs(t, err, transport.Unsupported)
	require.ErrorContains(t, err, "ResponseTopic has no place")
}

// Open gives back what was sealed, with source and type in front of the properties.
func TestOpenIsTheInverseOfSeal(t *testing.T) {
	for _, properties := range []bool{false, true} {
		for _, m := range []*transport.Message{full(), {ID: "1"}, {ID: "1", Body: []byte{0, 255}},
			{ID: "1", ContentType: "text/plain; charset=utf-8; x=y", Body: []byte("é")},
			{ID: "1", ContentType: "application/json", ContentEncoding: "utf-16", Body: []byte("1")},
			{ID: "1", Properties: []transport.Property{{Name: "type", Value: "own"}, {Name: "dataschema", Value: "urn:x"}}}} {
			var got transport.Message
			if !properties {
				m.ResponseTopic = ""
			}
			require.NoError(t, envelope.Seal(&got, m, properties))
			if !properties { // MQTT 3.1.1 has no place for more
				got = transport.Message{Body: got.Body}
			}
			envelope.Open(&got)
			want := *m
			want.Properties = append([]transport.Property{{Name: "source", Value: envelope.Source}, {Name: "type",
				Value: envelope.Type}}, m.Properties...)
			if len(m.Properties) > 0 && m.Properties[0].Name == "type" {
				want.Properties = append(want.Properties[:1], m.Properties...)
			}
			if !properties {
				want.Topic, want.Retain, want.AtMostOnce = "", false, false
			}
			require.Equal(t, want, got)
			opened := got
			envelope.Open(&got)
			require.Equal(t, opened, got, "opening it again changes nothing")

			e, err := cloudevents.Read(&got)
			require.NoError(t, err)
			require.Equal(t, m.ID, e.ID)
			var again transport.Message
			require.NoError(t, cloudevents.Envelope{}.Seal(&again, &got, properties), "it can be passed on as it is")
		}
	}
}

// What an event has no place for refuses the message alone, and the error names it.
func TestSealRefusesWithTheAttribute(t *testing.T) {
	property := func(names ...string) *transport.Message {
		m := &transport.Message{ID: "1"}
		for _, n := range names {
			m.Properties = append(m.Properties, transport.Property{Name: n, Value: "1"})
		}
		return m
	}
	for _, c := range []struct {
		name string
		v    cloudevents.Envelope
		m    *transport.Message
	}{
		{"id", envelope, &transport.Message{}},
		{"source", cloudevents.Envelope{Type: "t"}, &transport.Message{ID: "1"}},
		{"source", cloudevents.Envelope{Source: "urn:{device}", Type: "t"}, &transport.Message{ID: "1"}},
		{"type", cloudevents.Envelope{Source: "s"}, &transport.Message{ID: "1"}},
		{"Level", envelope, property("Level")}, {"alarm-level", envelope, property("a", "alarm-level")},
		{"time", envelope, property("time")}, {"specversion", envelope, property("specversion")},
		{"data", envelope, property("data")}, {"a", envelope, property("a", "b", "a")},
		{"type", envelope, property("type", "type")},
		{"subject", envelope, &transport.Message{ID: "1", Component: "\x01"}},
		{"correlationid", envelope, &transport.Message{ID: "1", CorrelationID: "c",
			Properties: []transport.Property{{Name: "correlationid", Value: "d"}}}},
		{"expirytime", envelope, &transport.Message{ID: "1", Expires: time.Unix(1, 0),
			Properties: []transport.Property{{Name: "expirytime", Value: "d"}}}},
		{"datacontenttype", envelope, &transport.Message{ID: "1", ContentEncoding: "utf-8"}},
		{"datacontenttype", envelope, &transport.Message{ID: "1", ContentType: "text/plain;charset=utf-8",
			ContentEncoding: "utf-16"}},
		{"datacontenttype", envelope, &transport.Message{ID: "1", ContentType: "text/plain", ContentEncoding: "a b"}},
		{"datacontenttype", envelope, &transport.Message{ID: "1", ContentType: "text"}},
	} {
		for _, properties := range []bool{false, true} {
			var dst transport.Message
			attributeError(t, c.v.Seal(&dst, c.m, properties), c.name)
			require.Zero(t, dst)
		}
	}
	var dst transport.Message
	bad := &transport.Message{ID: "1", ContentType: "application/json", Body: []byte("{")}
	attributeError(t, envelope.Seal(&dst, bad, false), "data")
	require.NoError(t, envelope.Seal(&dst, bad, true), "data is opaque in the binary mode")
}

func TestTheContentTypeOfTheEnvelopeIsForMessagesWithout(t *testing.T) {
	v := envelope
	v.ContentType = "application/json"
	var got transport.Message
	require.NoError(t, v.Seal(&got, &transport.Message{ID: "1", Body: []byte(`{"a":1}`)}, false))
	require.Contains(t, string(got.Body), `"datacontenttype":"application/json","data":{"a":1}}`)
	require.NoError(t, v.Seal(&got, &transport.Message{ID: "1", ContentType: "text/plain", Body: []byte(`{"a":1}`)},
		false))
	require.Contains(t, string(got.Body), `"datacontenttype":"text/plain","data":"{\"a\":1}"}`)
}

// Messages of others stay as they are, and so do properties that are no attributes.
func TestOpenLeavesOtherMessagesAlone(t *testing.T) {
	for _, m := range []transport.Message{
		{}, {Body: []byte("reboot")}, {Body: []byte(`{"celsius":1}`)}, {ContentType: "application/json", Body: []byte(`{}`)},
		{Body: []byte(`{"specversion":"0.3","id":"1","source":"/s","type":"t"}`)},
		{Properties: []transport.Property{{Name: "id", Value: "1"}, {Name: "source", Value: "/s"},
			{Name: "type", Value: "t"}}},
		{Properties: []transport.Property{{Name: "specversion", Value: "1.0"}, {Name: "id", Value: "1"}}},
		{ContentType: "application/cloudevents+avro",
			Body: []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t"}`)},
		{ContentType: "application/cloudevents-batch+json", Body: []byte("[]")},
		{ContentType: "application/cloudevents+json", Body: []byte("{}")},
	} {
		got := m
		envelope.Open(&got)
		require.Equal(t, m, got)
		_, err := cloudevents.Read(&got)
		require.Error(t, err)
	}
	got := transport.Message{Properties: []transport.Property{
		{Name: "traceParent", Value: "x"}, {Name: "specversion", Value: "1.0"}, {Name: "id", Value: "1"},
		{Name: "source", Value: "/s"}, {Name: "__ts", Value: "y"}, {Name: "type", Value: "t"}, {Name: "level", Value: "2"},
	}}
	envelope.Open(&got)
	require.Equal(t, transport.Message{ID: "1", Properties: []transport.Property{
		{Name: "source", Value: "/s"}, {Name: "type", Value: "t"}, {Name: "level", Value: "2"},
		{Name: "traceParent", Value: "x"}, {Name: "__ts", Value: "y"},
	}}, got)
	got = transport.Message{ContentType: cloudevents.ContentType, Properties: got.Properties,
		Body: []byte(`{"specversion":"1.0","id":"1","source":"/s","type":"t"}`)}
	envelope.Open(&got)
	require.Equal(t, []transport.Property{{Name: "source", Value: "/s"}, {Name: "type", Value: "t"},
		{Name: "traceParent", Value: "x"}, {Name: "__ts", Value: "y"}}, got.Properties, "copies of attributes go")
	_, err := cloudevents.Read(&transport.Message{Body: []byte("reboot")})
	require.ErrorIs(t, err, cloudevents.ErrNoEvent)
}

// The project's own library for Go writes the names of attributes as over HTTP.
func TestThePrefixOfOtherSendersIsRead(t *testing.T) {
	got := transport.Message{ContentType: "text/plain", Body: []byte("x"), Properties: []transport.Property{
		{Name: "ce-id", Value: "1"}, {Name: "ce-source", Value: "/s"}, {Name: "ce-specversion", Value: "1.0"},
		{Name: "ce-type", Value: "t"}, {Name: "ce-level", Value: "2"}, {Name: "own", Value: "3"},
	}}
	e, err := cloudevents.Read(&got)
	require.NoError(t, err)
	require.Equal(t, cloudevents.Event{ID: "1", Source: "/s", Type: "t", DataContentType: "text/plain", Data: []byte("x"),
		Extensions: map[string]any{"level": "2"}}, e)
	envelope.Open(&got)
	require.Equal(t, transport.Message{ID: "1", ContentType: "text/plain", Body: []byte("x"),
		Properties: []transport.Property{
			{Name: "source", Value: "/s"}, {Name: "type", Value: "t"}, {Name: "level", Value: "2"}, {Name: "own", Value: "3"},
		}}, got)
}

// A message costs its body or its properties, and over MQTT 5 the text of a time.
func TestSealAllocatesLittle(t *testing.T) {
	m, v := full(), envelope
	m.ContentEncoding, m.Expires, m.ResponseTopic = "", time.Time{}, ""
	var dst transport.Message
	for _, c := range []struct {
		properties bool
		most       float64
	}{{false, 1}, {true, 2}} {
		require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
			if err := v.Seal(&dst, m, c.properties); err != nil {
				t.Error(err)
			}
		}), c.most, "properties %t", c.properties)
	}
}
