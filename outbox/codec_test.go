package outbox_test

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/outbox"
	"github.com/hubline-iot/hubline/transport"
)

// The bytes of messages in files, so that a program reads what an earlier one wrote.
func TestTheFormatOfMessages(t *testing.T) {
	system := &transport.SystemProperties{To: "t", UserID: "u", Schema: "s", InterfaceID: "i", ConnectionDeviceID: "d",
		ConnectionModuleID: "m", DiagnosticID: "x", DiagnosticContext: "y"}
	for want, m := range map[string]*transport.Message{
		"0200" + "00000000000000" + "0000" + "00" + "00": {},
		"0203" + "0131" + "000000" + "0163" + "0161" + "00" + "0000" + "00" + "0162": {ID: "1", Component: "c",
			Topic: "a", Retain: true, AtMostOnce: true, Body: []byte("b")},
		"0204" + "0131" + "000000000000" + "016f" + "0000000000000000" + "0000" + "00" + "00": {ID: "1", Output: "o"},
		"0204" + "00000000000000" + "00" + "0174" + "0175" + "0173" + "0169" + "0164" + "016d" + "0178" + "0179" +
			"0000" + "01" + "01610162" + "00": {System: system, Properties: []transport.Property{{Name: "a", Value: "b"}}},
	} {
		encoded := outbox.AppendMessage(nil, m)
		require.Equal(t, want, hex.EncodeToString(encoded))
		var got transport.Message
		require.NoError(t, outbox.ReadMessage(encoded, &got))
		require.Equal(t, string(m.Body), string(got.Body))
		got.Body = m.Body
		require.Equal(t, *m, got)
	}
	require.Equal(t, outbox.AppendMessage(nil, new(transport.Message)),
		outbox.AppendMessage(nil, &transport.Message{System: new(transport.SystemProperties), Input: "not stored"}))
}

// A message of another version, or with a flag of a later one, is not taken for what it is not.
func TestMessagesOfOtherVersionsAreNotRead(t *testing.T) {
	good := outbox.AppendMessage(nil, &transport.Message{Output: "o"})
	var m transport.Message
	require.NoError(t, outbox.ReadMessage(good, &m))
	for at, values := range map[int][]byte{0: {0, 1, 3, 255}, 1: {0, 3, 8, 12, 255}} {
		for _, v := range values {
			other := append([]byte(nil), good...)
			other[at] = v
			require.Error(t, outbox.ReadMessage(other, &m), "%x", other)
		}
	}
}

// What a message had before does not stay in the memory that is read into.
func TestAReadMessageHasNothingOfTheOneBefore(t *testing.T) {
	m := transport.Message{Output: "old", System: &transport.SystemProperties{To: "old"}}
	require.NoError(t, outbox.ReadMessage(outbox.AppendMessage(nil, &transport.Message{ID: "1"}), &m))
	require.Equal(t, "1", m.ID)
	require.Empty(t, m.Output)
	require.Nil(t, m.System)
}
