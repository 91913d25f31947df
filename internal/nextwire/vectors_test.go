package nextwire

import (
	"bytes"
	"encoding/hex"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	low  = []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	high = []byte{16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}
	f0   = append([]byte{0xf0}, make([]byte, 15)...)
)

// vectors are bytes of the service's own clients and of the protobuf standard.
var vectors = []struct {
	name, wire string
	message    Message
}{
	{"birth with both pushes", "60016801", &Birth{PushDesired: true, PushReported: true}},
	{"birth in a session", "080160016801", &Birth{SessionPresent: true, PushDesired: true, PushReported: true}},
	{"birth with versions", "0801500758ac026001",
		&Birth{SessionPresent: true, ReportedVersion: 7, DesiredVersion: 300, PushDesired: true}},
	{"birth-ack", "50025801", &BirthAck{2, 1}},
	{"birth-ack with two bytes", "50ac025807", &BirthAck{300, 7}},
	{"birth-ack of zeros", "", &BirthAck{}},
	{"get both", "0803", &TwinGet{Sections: SectionBoth}},
	{"get filtered", "08011005", &TwinGet{Sections: SectionDesired, IfNotMatchDesired: 5}},
	{"get with both filters", "080310051806", &TwinGet{SectionBoth, 5, 6}},
	{"get-response", "080210011a0f7b2266616e5370656564223a34337d22027b7d",
		&GetResponse{2, 1, []byte(`{"fanSpeed":43}`), []byte("{}")}},
	{"get-response filtered", "08021001", &GetResponse{DesiredVersion: 2, ReportedVersion: 1}},
	{"get-response with an empty payload", "080210011a00", &GetResponse{2, 1, []byte{}, nil}},
	{"reported-patch", "080112077b2261223a317d", &ReportedPatch{1, []byte(`{"a":1}`)}},
	{"reported-patch of any version", "12077b2261223a317d", &ReportedPatch{0, []byte(`{"a":1}`)}},
	{"patch-response", "08011002", &PatchResponse{PatchOK, 2}},
	{"patch-response with a mismatch", "08021001", &PatchResponse{PatchVersionMismatch, 1}},
	{"twin-push", "0a0b080212077b2261223a317d", &TwinPush{Desired: &Section{2, []byte(`{"a":1}`)}}},
	{"twin-push of both", "0a0b080212077b2261223a317d1206080112027b7d",
		&TwinPush{&Section{2, []byte(`{"a":1}`)}, &Section{1, []byte("{}")}}},
	{"twin-push of an empty section", "1200", &TwinPush{Reported: &Section{}}},
	{"desired-patch", "080312077b2261223a327d", &DesiredPatch{3, []byte(`{"a":2}`)}},
	{"desired-patch without payload", "0803", &DesiredPatch{Version: 3}},
	{"probe", "0a067265626f6f7410ac02", &Probe{"reboot", 300}},
	{"exec", "0a10000102030405060708090a0b0c0d0e0f12077b2278223a317d", &Exec{ReadyID: low, Params: []byte(`{"x":1}`)}},
	{"exec with a time", "0a10101112131415161718191a1b1c1d1e1f12077b2278223a317d1a080880e2cfaa061005",
		&Exec{high, []byte(`{"x":1}`), &Timestamp{1_700_000_000, 5}}},
	{"exec before 1970", "1a0b08ffffffffffffffffff01", &Exec{Start: &Timestamp{Seconds: -1}}},
	{"probe-ack ready", "0a120a10101112131415161718191a1b1c1d1e1f", &ProbeAck{Ready: &Ready{high}}},
	{"probe-ack busy", "12020803", &ProbeAck{Rejected: &Rejected{RejectDeviceBusy}}},
	{"probe-ack rejected without a reason", "1200", &ProbeAck{Rejected: &Rejected{}}},
	{"probe-ack with neither", "", &ProbeAck{}},
	{"abandon", "0a10f00000000000000000000000000000001001", &Abandon{f0, AbandonReadyWaitTimeout}},
	{"abandon without a reason", "0a10f0000000000000000000000000000000", &Abandon{ReadyID: f0}},
	{"result", "08c80112026f6b", &Result{200, []byte("ok")}},
	{"result below zero", "08ffffffffffffffffff01", &Result{Status: -1}},
	{"result of nothing", "", &Result{}},
}

// empty returns a new message of m's type.
func empty(m Message) Message { return reflect.New(reflect.TypeOf(m).Elem()).Interface().(Message) }

func TestMessagesHaveTheBytesOfTheVectors(t *testing.T) {
	for _, v := range vectors {
		t.Run(v.name, func(t *testing.T) {
			require.Equal(t, v.wire, hex.EncodeToString(Append(nil, v.message)))
			m := empty(v.message)
			require.NoError(t, Decode(unhex(v.wire), m))
			require.Equal(t, v.message, m)
		})
	}
}

func TestDecodeReadsWhatOthersMayWrite(t *testing.T) {
	for _, v := range []struct {
		name, wire string
		message    Message
	}{
		{"unknown fields of each type", "0a0470696e67287f3101020304050607083a03aabbcc4509080706101e", &Probe{"ping", 30}},
		{"fields in another order", "58015002", &BirthAck{2, 1}},
		{"the last of two", "500350025801", &BirthAck{2, 1}},
		{"a known field of another wire type", "0a015050025801", &BirthAck{2, 1}},
		{"a known field of another wire type, fixed", "55010203045801", &BirthAck{0, 1}},
		{"the last arm", "0a030a0101" + "12020802", &ProbeAck{Rejected: &Rejected{RejectInsufficientTime}}},
		{"the last arm is ready", "12020802" + "0a030a0101", &ProbeAck{Ready: &Ready{[]byte{1}}}},
		{"a section in two parts", "0a020802" + "0a0412027b7d", &TwinPush{Desired: &Section{2, []byte("{}")}}},
		{"true as another number", "0802", &Birth{SessionPresent: true}},
		{"a varint longer than need be", "5082808000", &BirthAck{DesiredVersion: 2}},
		{"an unknown value of an enumeration", "0863", &PatchResponse{Result: 99}},
	} {
		t.Run(v.name, func(t *testing.T) {
			m := empty(v.message)
			require.NoError(t, Decode(unhex(v.wire), m))
			require.Equal(t, v.message, m)
		})
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	for name, wire := range map[string]string{
		"a length past the end":           "0a207265626f6f74",
		"a length that overflows":         "0affffffffffffffffff01",
		"a varint cut off":                "10ac",
		"a varint of more than ten bytes": "10808080808080808080808001",
		"a varint of more than 64 bits":   "10ffffffffffffffffff02",
		"a group":                         "2b00",
		"the end of a group":              "2c",
		"a wire type that is none":        "2e00",
		"field number 0":                  "0001",
		"a field number too large":        "808080801000",
		"a number over 32 bits":           "108080808020",
		"a tag alone":                     "0a",
		"a fixed number cut off":          "3101020304050607",
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, Decode(unhex(wire), &Probe{}), ErrMalformed)
			// The same inside of a message of its own.
			if name != "a number over 32 bits" {
				inner := append([]byte{0x0a, byte(len(wire) / 2)}, unhex(wire)...)
				require.ErrorIs(t, Decode(inner, &TwinPush{}), ErrMalformed)
			}
		})
	}
}

func TestDecodedSlicesArePartsOfTheInput(t *testing.T) {
	b := Append(nil, &GetResponse{2, 1, []byte(`{"a":1}`), nil})
	var m GetResponse
	require.NoError(t, Decode(b, &m))
	require.True(t, &m.Desired[0] == &b[len(b)-len(m.Desired)])
	require.Equal(t, len(m.Desired), cap(m.Desired)) // an append does not reach the rest
}

func FuzzDecode(f *testing.F) {
	kinds := []Message{&Birth{}, &BirthAck{}, &TwinGet{}, &GetResponse{}, &ReportedPatch{}, &PatchResponse{}, &TwinPush{},
		&DesiredPatch{}, &Probe{}, &ProbeAck{}, &Exec{}, &Result{}, &Abandon{}}
	for _, v := range vectors {
		for i, m := range kinds {
			if reflect.TypeOf(m) == reflect.TypeOf(v.message) {
				f.Add(byte(i), unhex(v.wire))
			}
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		m := empty(kinds[int(kind)%len(kinds)])
		if Decode(b, m) != nil {
			return
		}
		first := Append(nil, m)
		again := empty(m)
		if err := Decode(first, again); err != nil {
			t.Fatalf("%x is %+v, written as %x: %v", b, m, first, err)
		}
		if second := Append(nil, again); !bytes.Equal(first, second) {
			t.Fatalf("%x written as %x, then as %x", b, first, second)
		}
	})
}

func TestUserName(t *testing.T) {
	const official = "correlationId=4f3c2a1b9d8e47f0a1b2c3d4e5f60718&clientVersion=csharp%2F1.42.0"
	nonce, _ := ParseID(unhex("4f3c2a1b9d8e47f0a1b2c3d4e5f60718"))
	require.Equal(t, official, UserName(nonce, "csharp/1.42.0"))
	for _, s := range []string{official, "correlationId=4F3C2A1B9D8E47F0A1B2C3D4E5F60718&clientVersion=csharp%2F1.42.0"} {
		id, client, ok := ParseUserName(s)
		require.True(t, ok)
		require.Equal(t, nonce, id)
		require.Equal(t, "csharp/1.42.0", client)
	}
	for _, s := range []string{"", "correlationId=&clientVersion=", "correlationId=4f3c&clientVersion=c",
		"correlationId=4f3c2a1b9d8e47f0a1b2c3d4e5f60718", "correlationId=+f3c2a1b9d8e47f0a1b2c3d4e5f60718&clientVersion=c",
		"4f3c2a1b9d8e47f0a1b2c3d4e5f60718&clientVersion=c", official + "%",
		"correlationId=4f3c2a1b9d8e47f0a1b2c3d4e5f6071g&clientVersion=c"} {
		_, _, ok := ParseUserName(s)
		require.False(t, ok, s)
	}
}

func TestTopicsAndIDs(t *testing.T) {
	require.Equal(t, "ih/d/srv/twin", Up("d", FeatureTwin))
	require.Equal(t, "ih/d/dev/methods", Down("d", FeatureMethods))
	require.Equal(t, "ih/d/dev/#", Filter("d"))
	for typ, want := range map[string]bool{"birth-ack": true, "birth-ack:1": true, "birth-ack:7": true,
		"birth-ack2": false, "": false} {
		require.Equal(t, want, IsBirthAck(typ), typ)
	}
	for _, size := range []int{0, 15, 17} {
		_, ok := ParseID(make([]byte, size))
		require.False(t, ok, size)
	}
	id := NewID(ID(bytes.Repeat([]byte{0xff}, 16)))
	require.Equal(t, "ffffffffffff4fffbfffffffffffffff", hex.EncodeToString(id[:]))
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}
