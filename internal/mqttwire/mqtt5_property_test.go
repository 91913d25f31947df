package mqttwire

import (
	"errors"
	"strings"
	"testing"
)

// standard is table 2-4: for each property its type, and the packets that may have it. W is the
// will, 1 to 9 are the types of table 2-1, then U UNSUBSCRIBE, V UNSUBACK, D DISCONNECT, A AUTH.
var standard = map[PropertyID]string{
	0x01: "byte 3W", 0x02: "four 3W", 0x03: "text 3W", 0x08: "text 3W", 0x09: "binary 3W", 0x0b: "varint 38",
	0x11: "four 12D", 0x12: "text 2", 0x13: "two 2", 0x15: "text 12A", 0x16: "binary 12A", 0x17: "byte 1", 0x18: "four W",
	0x19: "byte 1", 0x1a: "text 2", 0x1c: "text 2D", 0x1f: "text 245679VDA", 0x21: "two 12", 0x22: "two 12", 0x23: "two 3",
	0x24: "byte 2", 0x25: "byte 2", 0x26: "pair 1W2345678" + "9UVDA", 0x27: "four 12", 0x28: "byte 2", 0x29: "byte 2",
	0x2a: "byte 2",
}

var packets = map[byte]Type{'W': will, '1': 1, '2': 2, '3': 3, '4': 4, '5': 5, '6': 6, '7': 7, '8': 8,
	'9': 9,
	'U': 10, 'V': 11, 'D': 14, 'A': 15}

func TestThePropertyTableIsTheStandards(t *testing.T) {
	values := map[string]string{"byte": "\x01", "two": "\x00\x01", "four": "\x00\x00\x00\x01", "varint": "\x01",
		"text": "\x00\x01t", "binary": "\x00\x01t", "pair": "\x00\x01n\x00\x01v"}
	for id := range 256 {
		kind, where, exists := strings.Cut(standard[PropertyID(id)], " ")
		value := string(rune(0)) + values[kind]
		block := append([]byte{byte(id)}, value[1:]...)
		for name, packet := range packets {
			b := block
			if PropertyID(id) == AuthData {
				b = append(b[:len(b):len(b)], byte(AuthMethod), 0, 0)
			}
			want := error(nil)
			if !exists || strings.IndexByte(where, name) < 0 {
				want = ErrProperty
			}
			if err := check(packet, b); !errors.Is(err, want) {
				t.Errorf("property %#x in packet %c: %v, want %v", id, name, err, want)
			}
			twice := append(append([]byte(nil), b...), b...)
			if want == nil && !(PropertyID(id) == UserProperty || PropertyID(id) == SubscriptionIdentifier && name == '3') {
				want = ErrTwice
			}
			if err := check(packet, twice); !errors.Is(err, want) {
				t.Errorf("property %#x twice in packet %c: %v, want %v", id, name, err, want)
			}
		}
	}
}

func TestEncodedPropertiesAreReadBack(t *testing.T) {
	for id := range PropertyID(propertyIDs) {
		kind, _, exists := strings.Cut(standard[id], " ")
		if !exists {
			continue
		}
		var block []byte
		want := Property{ID: id}
		switch kind {
		case "text", "binary":
			block, want.Text = AppendString(nil, id, "text"), []byte("text")
		case "pair":
			block, want.Text, want.Value = AppendPair(nil, "name", ""), []byte("name"), []byte{}
		default:
			block, want.Number = AppendNumber(nil, id, 1), 1
		}
		got, rest, ok := Properties(block).Next()
		if !ok || len(rest) > 0 || got.ID != id || got.Number != want.Number || string(got.Text) != string(want.Text) ||
			string(got.Value) != string(want.Value) {
			t.Errorf("%#x: %x is %+v %v", id, block, got, ok)
		}
	}
}

func TestVariableByteIntegers(t *testing.T) {
	for n, size := range map[int]int{0: 1, 127: 1, 128: 2, 16383: 2, 16384: 3, 2097151: 3, 2097152: 4, MaxBody: 4} {
		b := appendVarint(nil, n)
		got, read, err := varint(append(b, 0xff))
		if int(got) != n || read != size || len(b) != size || HeaderSize(n)-1 != size || err != nil {
			t.Errorf("%d is %x, reads as %d of %d bytes, %v", n, b, got, read, err)
		}
	}
}

func TestATextWithControlCharactersIsNotSent(t *testing.T) {
	for text, valid := range map[string]bool{
		"": true, "ä ~\u00a0\ufffd\U0010fffd": true, strings.Repeat("x", 65535): true, strings.Repeat("x", 65536): false,
		"\x00": false, "a\x01": false, "\x1f": false, "\x7f": false, "\u009f": false, "\ufffe": false, "\U0010ffff": false,
		"\xff": false, "\xed\xa0\x80": false,
	} {
		if ValidText(text) != valid {
			t.Errorf("%.20q is valid: %v", text, !valid)
		}
	}
}
