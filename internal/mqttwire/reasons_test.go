package mqttwire

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/transport"
)

// failures are the reason codes of table 2-6 that are failures, with the packets that may have
// them: C CONNACK, P PUBACK and PUBREC, S SUBACK and UNSUBACK, D DISCONNECT. Lower case: brokers
// send them there, against the table.
var failures = map[byte]string{
	0x80: "CPSD", 0x81: "CD", 0x82: "CD", 0x83: "CPSD", 0x84: "C", 0x85: "C", 0x86: "C", 0x87: "CPSD", 0x88: "C",
	0x89: "CD", 0x8a: "C", 0x8b: "D", 0x8c: "CD", 0x8d: "D", 0x8e: "D", 0x8f: "SD", 0x90: "CPD", 0x91: "PS", 0x92: "",
	0x93: "D", 0x94: "D", 0x95: "CpD", 0x96: "D", 0x97: "CPSD", 0x98: "D", 0x99: "CPD", 0x9a: "CpD", 0x9b: "CpD",
	0x9c: "CD",
	0x9d: "CD", 0x9e: "SD", 0x9f: "CD", 0xa0: "D", 0xa1: "SD", 0xa2: "SD",
}

func TestTheTableOfReasonCodesIsComplete(t *testing.T) {
	packets := map[string]string{"C": PacketConnack, "P": PacketPuback, "S": PacketSuback, "D": PacketDisconnect}
	for n := range 256 {
		code := byte(n)
		where, failure := failures[code]
		require.Equal(t, n < 0x80, Accepted(code))
		for letter, packet := range packets {
			m := ReasonMeaning(packet, code)
			require.NotEmpty(t, m.Text, "%s %#x", packet, code)
			switch {
			case failure && strings.Contains(where, letter):
				require.NotEqual(t, transport.Unknown, m.Kind, "%s %#x", packet, code)
				require.NotEqual(t, "reserved code", m.Text, "%s %#x", packet, code)
			case packet == PacketDisconnect && code == 0:
				require.Equal(t, transport.Network, m.Kind)
			case failure && letter != "C" && letter != "D": // as in the packet that has it
			default:
				require.Equal(t, transport.Protocol, m.Kind, "%s %#x", packet, code)
			}
		}
	}
}

func TestKindsOfReasonCodes(t *testing.T) {
	for _, c := range []struct {
		packet string
		code   byte
		kind   transport.Kind
		retry  bool
	}{
		{PacketConnack, 0x86, transport.Unauthorized, false}, {PacketConnack, 0x87, transport.Unauthorized, false},
		{PacketConnack, 0x88, transport.Unavailable, true}, {PacketConnack, 0x89, transport.Throttled, true},
		{PacketConnack, 0x82, transport.Protocol, false}, {PacketConnack, 0x9d, transport.NotFound, false},
		{PacketConnack, 0x8a, transport.Forbidden, false}, {PacketConnack, 0xff, transport.Protocol, false},
		{PacketPuback, 0x87, transport.Forbidden, false}, {PacketPuback, 0x97, transport.Quota, true},
		{PacketPuback, 0x90, transport.Invalid, false}, {PacketPuback, 0x80, transport.Unavailable, true},
		{PacketPuback, 0x95, transport.TooLarge, false}, {PacketPuback, 0x9a, transport.Unsupported, false},
		{PacketPuback, 0x9b, transport.Unsupported, false}, {PacketPuback, 0x89, transport.Throttled, true},
		{PacketPuback, 0x96, transport.Throttled, true}, {PacketPuback, 0x88, transport.Unavailable, true},
		{PacketPuback, 0x92, transport.Unavailable, true}, {PacketPuback, 0x93, transport.Unavailable, true},
		{PacketPuback, 0x9d, transport.Unavailable, true}, {PacketPuback, 0x81, transport.Protocol, false},
		{PacketPuback, 0xc0, transport.Protocol, false},
		{PacketSuback, 0x9b, transport.Unsupported, false}, {PacketSuback, 0x89, transport.Throttled, true},
		{PacketSuback, 0x87, transport.Forbidden, false}, {PacketSuback, 0xa2, transport.Unsupported, false},
		{PacketDisconnect, 0x00, transport.Network, true}, {PacketDisconnect, 0x8b, transport.Unavailable, true},
		{PacketDisconnect, 0x8d, transport.Timeout, true}, {PacketDisconnect, 0x96, transport.Throttled, true},
		{PacketDisconnect, 0x98, transport.Unavailable, true}, {PacketDisconnect, 0x87, transport.Unauthorized, false},
		{PacketDisconnect, 0x90, transport.Protocol, true}, {PacketDisconnect, 0x95, transport.Protocol, true},
		{PacketDisconnect, 0x99, transport.Protocol, true}, {PacketDisconnect, 0x9a, transport.Protocol, true},
		{PacketDisconnect, 0x82, transport.Protocol, true}, {PacketDisconnect, 0xc0, transport.Protocol, true},
	} {
		e := &ReasonError{Packet: c.packet, Code: c.code}
		var all error = Ended(e)
		if c.packet == PacketConnack {
			all = DialError(e)
		}
		require.Equal(t, c.kind, e.Kind(), "%s %#x", c.packet, c.code)
		require.ErrorIs(t, all, c.kind, "%s %#x", c.packet, c.code)
		require.Equal(t, c.retry, errfilter.Retryable(all), "%s %#x", c.packet, c.code)
		var found *ReasonError
		require.True(t, errors.As(all, &found) && found == e)
	}
}

// Two devices with one client id take each other's session over; each waits before it comes back.
func TestATakenOverSessionIsRetriedAfterADelay(t *testing.T) {
	e := Ended(&ReasonError{Packet: PacketDisconnect, Code: 0x8e})
	require.Equal(t, TakenOverDelay, e.RetryAfter)
	require.ErrorIs(t, e, transport.ErrTakenOver)
	require.NotErrorIs(t, Ended(&ReasonError{Packet: PacketDisconnect, Code: 0x8b}), transport.ErrTakenOver)
	require.True(t, errfilter.Retryable(e))
	require.Zero(t, Ended(&ReasonError{Packet: PacketDisconnect, Code: 0x8b}).RetryAfter)
}

func TestTextsOfReasonErrors(t *testing.T) {
	e := NewReasonError(PacketConnack, 0x9c, []byte("moving\npassword=hunter2"), []byte("other:8883"))
	require.Equal(t, "mqtt dial: service unavailable: CONNACK 0x9C (use another server): "+e.Reason+
		"; the broker names another server: other:8883", DialError(e).Error())
	require.NotContains(t, e.Reason, "hunter2")
	require.NotContains(t, e.Reason, "\n")
	require.Less(t, len(NewReasonError(PacketPuback, 0x80, []byte(strings.Repeat("x ", 30000)), nil).Error()), 1200)
	require.Equal(t, "SUBACK 0x87 (not authorized) for a/#",
		(&ReasonError{Packet: PacketSuback, Code: 0x87, Filter: "a/#"}).Error())
	require.Equal(t, "PUBACK 0xC0 (reserved code)", (&ReasonError{Packet: PacketPuback, Code: 0xc0}).Error())
}
