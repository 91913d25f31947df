package message

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

// everything is a message with all fields that a hub has.
func everything() *transport.Message {
	return &transport.Message{
		ID: "m", CorrelationID: "c", ContentType: "t", ContentEncoding: "e", Component: "p", Output: "o",
		Created: time.UnixMilli(0).UTC(), Expires: time.UnixMilli(1).UTC(),
		System: &transport.SystemProperties{
			To: "to", UserID: "u", Schema: "s", InterfaceID: "i", ConnectionDeviceID: "d", ConnectionModuleID: "n",
			DiagnosticID: "g", DiagnosticContext: "x",
		},
		Properties: []transport.Property{{Name: "k", Value: "v"}}, Body: []byte("b"),
	}
}

// text returns a text with its code and length, in hexadecimal.
func text(code byte, s string) string {
	return hex.EncodeToString(append([]byte{code, byte(len(s))}, s...))
}

// Encoded by hand from the specification: annotations have symbols as keys, user-id is binary.
func TestAllSystemPropertiesInTheirEncoding(t *testing.T) {
	const symbol, str, bin = 0xa3, 0xa1, 0xa0
	annotated := text(symbol, "dt-subject") + text(str, "p") + text(symbol, "iothub-interface-id") + text(str, "i") +
		text(symbol, "Diagnostic-Id") + text(str, "g") + text(symbol, "Correlation-Context") + text(str, "x")
	standard := text(str, "m") + text(bin, "u") + text(str, "to") + "4040" + text(str, "c") + text(symbol, "t") +
		text(symbol, "e") + "83" + "0000000000000001"
	properties := text(str, "iothub-creation-time-utc") + text(str, "1970-01-01T00:00:00.000Z") +
		text(str, "iothub-outputname") + text(str, "o") + text(str, "iothub-message-schema") + text(str, "s") +
		text(str, "iothub-connection-device-id") + text(str, "d") + text(str, "iothub-connection-module-id") +
		text(str, "n") + text(str, "k") + text(str, "v")
	compound := func(section, code string, count byte, items string) string {
		return "0053" + section + code + hex.EncodeToString([]byte{byte(len(items)/2 + 1), count}) + items
	}
	require.Equal(t, compound("72", "c1", 8, annotated)+compound("73", "c0", 9, standard)+
		compound("74", "c1", 12, properties)+"005375"+text(bin, "b"),
		hex.EncodeToString(appendMessage(nil, everything())))
}

// Each field travels without the others.
func TestEachPropertyAlone(t *testing.T) {
	for _, m := range []transport.Message{
		{ID: "x"}, {CorrelationID: "x"}, {ContentType: "x"}, {ContentEncoding: "x"}, {Component: "x"}, {Output: "x"},
		{Expires: time.UnixMilli(1).UTC()}, {Created: time.UnixMilli(1).UTC()},
		{System: &transport.SystemProperties{To: "x"}}, {System: &transport.SystemProperties{UserID: "x"}},
		{System: &transport.SystemProperties{Schema: "x"}}, {System: &transport.SystemProperties{InterfaceID: "x"}},
		{System: &transport.SystemProperties{ConnectionDeviceID: "x"}},
		{System: &transport.SystemProperties{ConnectionModuleID: "x"}},
		{System: &transport.SystemProperties{DiagnosticID: "x"}},
		{System: &transport.SystemProperties{DiagnosticContext: "x"}},
	} {
		m.Body = []byte("b")
		back, _ := Inbound(read(t, appendMessage(nil, &m)), true)
		require.Equal(t, m, back)
	}
}

// A broker that is no hub gets what AMQP itself has. Other messages with these fields are refused
// before.
func TestABrokerGetsThePropertiesOfAMQP(t *testing.T) {
	m := everything()
	m.Output, m.System = "", &transport.SystemProperties{To: "to", UserID: "u"}
	sent := read(t, forBroker(m))
	require.Empty(t, sent.MessageAnnotations)
	require.Equal(t, wire.Map{{Key: "dt-subject", Value: "p"}, {Key: "k", Value: "v"}}, sent.ApplicationProperties)
	require.Equal(t, "to", sent.Properties.To.V)
	require.Equal(t, []byte("u"), sent.Properties.UserID)
	back, _ := Inbound(sent, false)
	require.Equal(t, *m, back)
}

// A message at an input, as a gateway sends it: the vector of a gateway's own test for MQTT.
func TestAMessageAtAnInput(t *testing.T) {
	const ct, ce = "application/json", "utf-8"
	m := &wire.Message{
		Properties: &wire.Properties{MessageID: "m1", CorrelationID: "1234", UserID: []byte("user1"), To: wire.Some("foo"),
			ContentType: ct, ContentEncoding: ce},
		MessageAnnotations: wire.Map{{Key: wire.Symbol("x-opt-input-name"), Value: "input1"},
			{Key: wire.Symbol("iothub-connection-device-id"), Value: "fromDevice1"},
			{Key: wire.Symbol("iothub-connection-module-id"), Value: wire.Symbol("fromModule1")},
			{Key: wire.Symbol("dt-subject"), Value: "testComponent"},
			{Key: wire.Symbol("x-opt-lock-token"), Value: "secret"}},
		ApplicationProperties: wire.Map{{Key: "iothub-message-schema", Value: "schema1"},
			{Key: "iothub-outputname", Value: "output1"},
			{Key: "Foo", Value: "Bar"},
			{Key: "Diagnostic-Id", Value: "the program's"},
			{Key: "iothub-connection-device-id", Value: "not this one"}},
		Data: [][]byte{[]byte("b")},
	}
	got, _ := Inbound(m, true)
	require.Equal(t, transport.Message{
		ID: "m1", CorrelationID: "1234", ContentType: ct, ContentEncoding: ce, Component: "testComponent",
		Input: "input1", Output: "output1", System: &transport.SystemProperties{To: "foo", UserID: "user1", Schema: "schema1",
			ConnectionDeviceID: "fromDevice1", ConnectionModuleID: "fromModule1"},
		Properties: []transport.Property{{Name: "Diagnostic-Id", Value: "the program's"}, {Name: "Foo", Value: "Bar"}},
		Body:       []byte("b"),
	}, got)
}

// Names of the hub mean nothing to other brokers, and values of a wrong type stay properties.
func TestNamesOfTheHubOutsideOfIt(t *testing.T) {
	got, _ := Inbound(&wire.Message{
		MessageAnnotations: wire.Map{{Key: wire.Symbol("x-opt-input-name"), Value: "i"},
			{Key: wire.Symbol("iothub-interface-id"), Value: "x"}},
		ApplicationProperties: wire.Map{{Key: "iothub-outputname", Value: "o"}},
	}, false)
	require.Equal(t, transport.Message{Properties: []transport.Property{{Name: "iothub-outputname", Value: "o"}}}, got)
	got, _ = Inbound(&wire.Message{
		MessageAnnotations:    wire.Map{{Key: wire.Symbol("x-opt-input-name"), Value: int32(1)}},
		ApplicationProperties: wire.Map{{Key: "iothub-outputname", Value: int32(1)}},
	}, true)
	require.Equal(t, transport.Message{Properties: []transport.Property{{Name: "iothub-outputname", Value: "1"}}}, got)
}
