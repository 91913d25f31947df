package message

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

// appendMessage appends the encoding of m for a hub.
func appendMessage(dst []byte, m *transport.Message) []byte {
	return append(AppendHead(dst, m, true), m.Body...)
}

// forBroker returns the encoding of m for a broker that is no hub.
func forBroker(m *transport.Message) []byte { return append(AppendHead(nil, m, false), m.Body...) }

// read decodes a message as the receiving link does.
func read(t testing.TB, encoded []byte) *wire.Message {
	t.Helper()
	m, err := wire.DecodeTolerant(encoded)
	require.NoError(t, err)
	return m
}

// Encoded by hand from the specification.
func TestMessagesInTheirEncoding(t *testing.T) {
	require.Equal(t, []byte{0, 0x53, 0x75, 0xa0, 1, 'x'}, appendMessage(nil, &transport.Message{Body: []byte("x")}))
	require.Equal(t, []byte{
		0, 0x53, 0x73, 0xc0, 13, 7, 0xa1, 1, 'i', 0x40, 0x40, 0x40, 0x40, 0x40, 0xa3, 2, 'c', 't',
		0, 0x53, 0x74, 0xc1, 7, 2, 0xa1, 1, 'n', 0xa1, 1, 'v',
		0, 0x53, 0x75, 0xa0, 0,
	}, appendMessage(nil, &transport.Message{ID: "i", ContentType: "ct",
		Properties: []transport.Property{{Name: "n", Value: "v"}}}))
}

// A hub finds the component in the annotations, a broker in the application properties: it would
// have to detach the link for an unknown annotation.
func TestTheComponentOfAMessage(t *testing.T) {
	m := &transport.Message{Component: "c1", Body: []byte("x")}
	name := []byte{10, 'd', 't', '-', 's', 'u', 'b', 'j', 'e', 'c', 't', 0xa1, 2, 'c', '1'}
	body := []byte{0, 0x53, 0x75, 0xa0, 1, 'x'}
	require.Equal(t, bytes.Join([][]byte{{0, 0x53, 0x72, 0xc1, 17, 2, 0xa3}, name, body}, nil), appendMessage(nil, m))
	durable := []byte{0, 0x53, 0x70, 0xc0, 2, 1, 0x41}
	require.Equal(t, bytes.Join([][]byte{durable, {0, 0x53, 0x74, 0xc1, 17, 2, 0xa1}, name, body}, nil), forBroker(m))
	for name, in := range map[string]*wire.Message{
		"annotation": {MessageAnnotations: wire.Map{{Key: wire.Symbol("dt-subject"), Value: "c1"}}},
		"property":   {ApplicationProperties: wire.Map{{Key: "dt-subject", Value: "c1"}}},
	} {
		for _, hub := range []bool{true, false} {
			got, _ := Inbound(in, hub)
			require.Equal(t, transport.Message{Component: "c1"}, got, name)
		}
	}
	got, _ := Inbound(&wire.Message{MessageAnnotations: wire.Map{{Key: wire.Symbol("dt-subject"), Value: int32(1)}}}, true)
	require.Equal(t, transport.Message{}, got, "none that a program can use")
}

// The response topic is reply-to, for brokers.
func TestTheResponseTopicOfAMessage(t *testing.T) {
	sent := read(t, forBroker(&transport.Message{ResponseTopic: "answers/1"}))
	require.Equal(t, "answers/1", sent.Properties.ReplyTo.V)
	got, _ := Inbound(sent, false)
	require.Equal(t, "answers/1", got.ResponseTopic)
	got, _ = Inbound(sent, true)
	require.Empty(t, got.ResponseTopic, "a hub takes no answers there")
}

// A broker keeps acknowledged messages over a restart only if they are durable; a hub always keeps
// them.
func TestBrokersGetDurableMessages(t *testing.T) {
	m := &transport.Message{Body: []byte("x")}
	require.Equal(t, &wire.Header{Durable: true, Priority: 4}, read(t, forBroker(m)).Header)
	require.Nil(t, read(t, appendMessage(nil, m)).Header)
}

func TestEncodingAllocatesNothing(t *testing.T) {
	m := &transport.Message{ID: "1", Component: "c1", Created: time.Now(), Expires: time.Now(), Output: "o",
		System:     &transport.SystemProperties{To: "t", UserID: "u", Schema: "s", DiagnosticID: "d"},
		Properties: []transport.Property{{Name: "a", Value: "b"}}, Body: make([]byte, 100)}
	buf := make([]byte, 0, 1024)
	require.Zero(t, testing.AllocsPerRun(100, func() { buf = appendMessage(buf[:0], m) }))
}

// requireSame checks that an independent library decodes our encoding, and that we decode what it
// encodes then to the same message.
func requireSame(t testing.TB, m *transport.Message, encoded []byte, hub bool) {
	t.Helper()
	var got amqp.Message
	require.NoError(t, got.UnmarshalBinary(encoded))
	require.Len(t, got.Data, 1)
	other, err := got.MarshalBinary()
	require.NoError(t, err)
	back, redelivered := Inbound(read(t, other), hub)
	require.False(t, redelivered)
	require.Equal(t, m.ID, back.ID)
	require.Equal(t, m.CorrelationID, back.CorrelationID)
	require.Equal(t, m.ContentType, back.ContentType)
	require.Equal(t, m.ContentEncoding, back.ContentEncoding)
	require.Equal(t, m.Component, back.Component)
	output, system := m.Output, m.System
	if !hub {
		output = ""
		if system != nil {
			system = &transport.SystemProperties{To: system.To, UserID: system.UserID}
		}
	}
	require.Equal(t, output, back.Output)
	require.Equal(t, system, back.System)
	require.True(t, m.Expires.Truncate(time.Millisecond).Equal(back.Expires), "%v, %v", m.Expires, back.Expires)
	require.True(t, m.Created.Truncate(time.Millisecond).Equal(back.Created), "%v, %v", m.Created, back.Created)
	require.True(t, bytes.Equal(m.Body, back.Body))
	last := map[string]string{}
	for _, p := range m.Properties {
		last[p.Name] = p.Value
	}
	require.Len(t, back.Properties, len(last))
	for _, p := range back.Properties {
		require.Equal(t, last[p.Name], p.Value)
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("id", "corr", "application/json", "utf-8", "thermostat1", "", "", "name", "value", "other", "", []byte("body"),
		int64(1), int64(0))
	f.Add("", "", "", "", "", "o", "u", "", "", "", "", []byte(nil), int64(0), int64(1893456000000))
	f.Add(strings.Repeat("x", 300), "ä€", strings.Repeat("t", 256), "", strings.Repeat("ö", 200), strings.Repeat("o", 256),
		strings.Repeat("u", 300), "same", "1", "same", "2", bytes.Repeat([]byte{0xff}, 70_000), int64(946684800000),
		int64(-1))
	f.Fuzz(func(t *testing.T, id, corr, ct, ce, component, output, user, n1, v1, n2, v2 string, body []byte, created,
		expires int64) {
		m := &transport.Message{ID: id, CorrelationID: corr, ContentType: ct, ContentEncoding: ce, Component: component,
			Output: output, Body: body}
		if user != "" {
			m.System = &transport.SystemProperties{To: user + "/to", UserID: user, Schema: ct, InterfaceID: ce,
				ConnectionDeviceID: id, ConnectionModuleID: corr, DiagnosticID: n1, DiagnosticContext: v1}
		}
		for _, p := range []transport.Property{{Name: n1, Value: v1}, {Name: n2, Value: v2}} {
			if p.Name != "" {
				m.Properties = append(m.Properties, p)
			}
		}
		short := *m // the encoding of longer ids is fine
		short.ID, short.CorrelationID = "", ""
		if short.Validate() != nil || !utf8.ValidString(id) || !utf8.ValidString(corr) {
			t.Skip()
		}
		const year = 365 * 24 * int64(time.Hour/time.Millisecond)
		if created > 0 && created < 7000*year {
			m.Created = time.UnixMilli(created)
		}
		if expires > -1000*year && expires < 1000*year {
			m.Expires = time.UnixMilli(expires)
		}
		requireSame(t, m, appendMessage([]byte("before"), m)[len("before"):], true)
		requireSame(t, m, forBroker(m), false)
	})
}

// Whatever can be decoded can be delivered.
func FuzzInbound(f *testing.F) {
	full := appendMessage(nil, &transport.Message{ID: "i", Created: time.UnixMilli(1),
		Properties: []transport.Property{{Name: "a", Value: "b"}}, Body: []byte("x")})
	f.Add(full)
	f.Add([]byte{0, 0x53, 0x77, 0x44})
	f.Add([]byte{0, 0x53, 0x77, 0x73, 0, 0, 0, 0x41}) // a char
	f.Add([]byte{0, 0x53, 0x77, 0xe0, 2, 5, 0x43})    // an array of empty values
	f.Add([]byte{0, 0x53, 0x70, 0xc0, 7, 5, 0x40, 0x40, 0x40, 0x40, 0x52, 3, 0, 0x53, 0x75, 0xa0, 0})
	f.Fuzz(func(t *testing.T, encoded []byte) {
		m, err := wire.DecodeTolerant(encoded)
		if err != nil {
			return
		}
		for _, hub := range []bool{true, false} {
			Inbound(m, hub)
		}
	})
}

func TestInboundMessages(t *testing.T) {
	at := wire.Timestamp(time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC).UnixMilli())
	m := &wire.Message{
		Header: &wire.Header{DeliveryCount: 1},
		Properties: &wire.Properties{
			MessageID: wire.UUID{1, 15: 2}, CorrelationID: uint64(7), ContentType: "application/json", ContentEncoding: "utf-8",
			AbsoluteExpiryTime: wire.Some(at),
		},
		ApplicationProperties: wire.Map{{Key: "z", Value: int32(1)}, {Key: "a", Value: "b"}, {Key: "flag", Value: true},
			{Key: "iothub-ack", Value: "full"}, {Key: creationTime, Value: "2030-01-01T00:00:00Z"},
			{Key: "char", Value: wire.Char('c')}},
		MessageAnnotations: wire.Map{{Key: wire.Symbol("iothub-enqueuedtime"), Value: at},
			{Key: wire.Symbol("x-opt-lock-token"), Value: "secret"},
			{Key: wire.Symbol("iothub-deliverycount"), Value: uint8(1)}},
		Data: [][]byte{[]byte("o"), []byte("ne")},
	}
	got, redelivered := Inbound(m, true)
	require.True(t, redelivered)
	require.Equal(t, transport.Message{
		ID: "01000000-0000-0000-0000-000000000002", CorrelationID: "7",
		ContentType: "application/json", ContentEncoding: "utf-8", Expires: time.UnixMilli(int64(at)).UTC(),
		Created: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		Properties: []transport.Property{{Name: "a", Value: "b"}, {Name: "char", Value: "c"}, {Name: "flag", Value: "true"},
			{Name: "iothub-ack", Value: "full"}, {Name: "z", Value: "1"},
			{Name: "iothub-enqueuedtime", Value: "2031-02-03T04:05:06.000Z"}},
		Body: []byte("one"),
	}, got)
	for _, v := range []any{"text", []byte("text")} {
		got, _ := Inbound(&wire.Message{Value: v}, true)
		require.Equal(t, "text", string(got.Body))
	}
}

func TestBodies(t *testing.T) {
	for _, row := range []struct {
		m    wire.Message
		text string
		ok   bool
	}{
		{wire.Message{}, "", true},
		{wire.Message{HasValue: true}, "", true},
		{wire.Message{Data: [][]byte{[]byte("a"), []byte("b")}}, "ab", true},
		{wire.Message{Value: int32(-7), HasValue: true}, "-7", true},
		{wire.Message{Value: true, HasValue: true}, "true", true},
		{wire.Message{Value: wire.Symbol("s"), HasValue: true}, "s", true},
		{wire.Message{Value: []byte("b"), HasValue: true}, "b", true},
		{wire.Message{Value: wire.Map{}, HasValue: true}, "", false},
		{wire.Message{Value: wire.List{}, HasValue: true}, "", false},
		{wire.Message{Value: wire.Array{}, HasValue: true}, "", false},
		{wire.Message{Value: wire.Decimal32{}, HasValue: true}, "", false},
		{wire.Message{Value: &wire.Described{Descriptor: uint64(1)}, HasValue: true}, "", false},
		{wire.Message{Sequence: []wire.List{{}}}, "", false},
	} {
		body, ok := Body(&row.m)
		require.Equal(t, row.ok, ok, "%+v", row.m)
		require.Equal(t, row.text, string(body), "%+v", row.m)
	}
}

// A hub marks a redelivered message in one of two places.
func TestARedeliveredMessageIsMarked(t *testing.T) {
	count := func(n uint8) wire.Map { return wire.Map{{Key: wire.Symbol("iothub-deliverycount"), Value: n}} }
	for _, row := range []struct {
		name string
		m    wire.Message
		want bool
	}{
		{"nothing", wire.Message{}, false},
		{"header, first time", wire.Message{Header: &wire.Header{}}, false},
		{"header", wire.Message{Header: &wire.Header{DeliveryCount: 1}}, true},
		{"annotation, first time", wire.Message{MessageAnnotations: count(0)}, false},
		{"annotation", wire.Message{MessageAnnotations: count(1)}, true},
		{"header, and annotation of 0", wire.Message{Header: &wire.Header{DeliveryCount: 2},
			MessageAnnotations: count(0)}, true},
	} {
		_, redelivered := Inbound(&row.m, true)
		require.Equal(t, row.want, redelivered, row.name)
	}
}
