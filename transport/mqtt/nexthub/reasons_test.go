package nexthub

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/errfilter"
	"github.com/hubline-iot/hubline/internal/mqttwire"
	"github.com/hubline-iot/hubline/transport"
)

// contract is the service's table of reason codes: what its clients make of each in CONNACK,
// SUBACK, PUBACK and DISCONNECT. T is final, R retried, J retried with a delay that varies, I a
// refusal of the identity, E final at this endpoint, V a violation that may be due to one message
// (see reasons) and "-" not in the table, which means retried.
var contract = map[byte]string{
	0x80: "RRRR", 0x81: "T--V", 0x82: "T--V", 0x83: "RRRR", 0x84: "T---", 0x85: "I---", 0x86: "I---", 0x87: "ITTI",
	0x88: "R---", 0x89: "R--R", 0x8a: "T---", 0x8b: "---R", 0x8c: "I--I", 0x8d: "---R", 0x8e: "---T", 0x8f: "-T-T",
	0x90: "T-TV", 0x91: "-RR-", 0x93: "---T", 0x94: "---T", 0x95: "T-TV", 0x96: "---J", 0x97: "RRRR", 0x98: "---T",
	0x99: "T-TV", 0x9a: "T--V", 0x9b: "T--V", 0x9c: "E--E", 0x9d: "E--E", 0x9e: "-T-T", 0x9f: "J--J", 0xa0: "---R",
	0xa1: "-T-T", 0xa2: "-T-T",
}

// passed are codes that brokers acknowledge with although the table has them elsewhere: they mean
// the same there, as at other brokers.
const passed = "SUBACK 0x8A SUBACK 0x84 SUBACK 0x90 SUBACK 0x95 SUBACK 0x99 SUBACK 0x9A SUBACK 0x9B " +
	"PUBACK 0x84 PUBACK 0x8A PUBACK 0x8F PUBACK 0x9A PUBACK 0x9B PUBACK 0x9E PUBACK 0xA1 PUBACK 0xA2 " +
	"SUBACK 0x85 SUBACK 0x86 SUBACK 0x8C SUBACK 0x9D PUBACK 0x85 PUBACK 0x86 PUBACK 0x8C"

func TestReasonCodesMeanWhatTheContractSays(t *testing.T) {
	packets := []string{mqttwire.PacketConnack, mqttwire.PacketSuback, mqttwire.PacketPuback, mqttwire.PacketDisconnect}
	for n := 0x80; n < 0x100; n++ {
		row, known := contract[byte(n)]
		if !known {
			row = "----"
		}
		for i, packet := range packets {
			s := &session{state: &state{hub: new(Hub)}}
			e := mqttwire.NewReasonError(packet, byte(n), nil, nil)
			s.Judge(e)
			name, _, _ := strings.Cut(e.Error(), " (")
			var failure *transport.Error
			switch packet {
			case mqttwire.PacketConnack:
				failure = mqttwire.Denied(e)
			case mqttwire.PacketDisconnect:
				failure = mqttwire.Ended(e)
			default:
				failure = mqttwire.Refused(transport.OpSend, e.Kind(), e)
			}
			rule := errfilter.Of(failure)
			switch row[i] {
			case 'T':
				require.False(t, rule.Retry, name)
			case 'E':
				require.False(t, rule.Retry, name)
				require.Equal(t, transport.NotFound, failure.Kind, name)
			case 'I':
				require.True(t, rule.Retry, name)
				require.Equal(t, transport.Unauthorized, failure.Kind, name)
				require.Greater(t, failure.RetryAfter, 3*time.Minute, name)
			case 'V':
				require.True(t, rule.Retry, name)
				require.ErrorIs(t, failure, transport.ErrViolation, name)
			case 'J':
				require.True(t, rule.Retry, name)
				require.Equal(t, transport.Throttled, failure.Kind, name)
				require.GreaterOrEqual(t, failure.RetryAfter, 10*time.Second, name)
				require.LessOrEqual(t, failure.RetryAfter, 30*time.Second, name)
			default:
				require.Equal(t, strings.Contains(passed, name), !rule.Retry, "%s: %v", name, failure)
			}
		}
	}
}

func TestRefusalsOfTheIdentityHaveALadder(t *testing.T) {
	for n, want := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour,
		time.Hour, time.Hour} {
		var least, most time.Duration = time.Hour * 10, 0
		for range 500 {
			d := new(Hub).identityDelay(n + 1)
			least, most = min(least, d), max(most, d)
		}
		require.GreaterOrEqual(t, least, want*3/4)
		require.Less(t, least, want*4/5)
		require.LessOrEqual(t, most, want*5/4)
		require.Greater(t, most, want*6/5)
	}
}

func TestServerReferences(t *testing.T) {
	for reference, want := range map[string]string{
		"other.example.test": "other.example.test", "other.example.test:8883": "other.example.test",
		"Other-1.example.test [fe80::1]:8883": "Other-1.example.test",
		"":                                    "", "other.example.test:1883": "",
		"10.1.2.3": "", "[fe80::1]:8883": "", "localhost": "",
		"a..b": "", ".example.test": "", "exämple.test": "",
		"a/b.c": "", "user@b.c": "",
		strings.Repeat("a.", 127) + "b": "",
	} {
		var s state
		require.Equal(t, want != "", s.follow(reference), reference)
		require.Equal(t, want, s.nextHost(), reference)
	}
}

// A hub that sends the device on and on is left after three times. A server that cannot be reached
// is left for the host of the credentials.
func TestServerReferencesAreFollowedAFewTimes(t *testing.T) {
	var s state
	for range maxFollowed {
		require.True(t, s.follow("a.example.test"))
		require.Equal(t, "a.example.test", s.nextHost())
	}
	require.False(t, s.follow("a.example.test"))
	require.Empty(t, s.nextHost())

	for range 2 * maxFollowed {
		require.True(t, s.follow("a.example.test"))
		require.Equal(t, "a.example.test", s.nextHost())
		require.Empty(t, s.nextHost(), "it was not reached")
	}

	require.True(t, s.follow("a.example.test"))
	require.Equal(t, "a.example.test", s.nextHost())
	s.connected()
	require.Equal(t, "a.example.test", s.nextHost(), "a move is for longer than one connection")
}
