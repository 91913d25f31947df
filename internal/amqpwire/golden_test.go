package amqpwire

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unhex decodes hexadecimal digits with blanks; text in quotes is literal.
func unhex(t testing.TB, s string) []byte {
	t.Helper()
	var b []byte
	for i, part := range strings.Split(s, `"`) {
		if i%2 == 1 {
			b = append(b, part...)
			continue
		}
		p, err := hex.DecodeString(strings.ReplaceAll(part, " ", ""))
		require.NoError(t, err, s)
		b = append(b, p...)
	}
	return b
}

// Written by hand from the tables of the standard [1.6]: constructor, then the data, numbers in
// big-endian order.
var goldenValues = []struct {
	value any
	wire  string
}{
	{nil, "40"},
	{true, "41"},
	{false, "42"},
	{uint8(0), "50 00"},
	{uint8(0xfe), "50 fe"},
	{uint16(0x1234), "60 12 34"},
	{uint32(0), "43"},
	{uint32(1), "52 01"},
	{uint32(255), "52 ff"},
	{uint32(256), "70 00 00 01 00"},
	{uint64(0), "44"},
	{uint64(255), "53 ff"},
	{uint64(1 << 40), "80 00 00 01 00 00 00 00 00"},
	{int8(-1), "51 ff"},
	{int16(-2), "61 ff fe"},
	{int32(200), "71 00 00 00 c8"},
	{int32(-128), "54 80"},
	{int32(127), "54 7f"},
	{int64(-1), "55 ff"},
	{int64(128), "81 00 00 00 00 00 00 00 80"},
	{float32(1), "72 3f 80 00 00"},
	{float64(-2), "82 c0 00 00 00 00 00 00 00"},
	{Char('€'), "73 00 00 20 ac"},
	{Timestamp(-1), "83 ff ff ff ff ff ff ff ff"},
	{Timestamp(1311704463521), "83 00 00 01 31 67 ad b8 a1"},
	{Decimal32{1, 2, 3, 4}, "74 01 02 03 04"},
	{Decimal64{7: 9}, "84 00 00 00 00 00 00 00 09"},
	{Decimal128{15: 9}, "94 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 09"},
	{UUID{0x12, 15: 0x34}, "98 12 00 00 00 00 00 00 00 00 00 00 00 00 00 00 34"},
	{[]byte{}, "a0 00"},
	{[]byte{1, 2}, "a0 02 01 02"},
	{"", "a1 00"},
	{"Hello Glorious Messaging World", `a1 1e "Hello Glorious Messaging World"`}, // the standard's own example
	{"€", "a1 03 e2 82 ac"},
	{Symbol("$cbs"), `a3 04 "$cbs"`},
	{List(nil), "45"},
	{List{nil, true}, "c0 03 02 40 41"},
	{List{List(nil)}, "c0 02 01 45"},
	{Map{}, "c1 01 00"},
	{Map{{"a", uint32(0)}}, `c1 05 02 a1 01 "a" 43`},
	{Array{}, "e0 02 00 40"},
	{Array{Symbol("a")}, `e0 07 01 b3 00 00 00 01 "a"`},
	{Array{uint32(1), uint32(2)}, "e0 0a 02 70 00 00 00 01 00 00 00 02"},
	{Array{true, false}, "e0 04 02 56 01 00"},
	{&Described{uint64(0x24), List(nil)}, "00 53 24 45"},
	{&Described{Symbol("x"), "y"}, `00 a3 01 "x" a1 01 "y"`},
	{Array{&Described{uint64(1), uint8(2)}, &Described{uint64(1), uint8(3)}}, "e0 07 02 00 53 01 50 02 03"},
}

func TestGoldenValues(t *testing.T) {
	for _, c := range goldenValues {
		want := unhex(t, c.wire)
		got, err := Append(nil, c.value)
		require.NoError(t, err)
		require.Equal(t, want, got, "%T %v", c.value, c.value)
		back, rest, err := Decode(append(want, 0xee))
		require.NoError(t, err)
		require.Equal(t, c.value, back)
		require.Equal(t, []byte{0xee}, rest)
	}
}

// Alternative encodings of the same values.
func TestOtherEncodings(t *testing.T) {
	for _, c := range []struct {
		wire  string
		value any
	}{
		{"56 01", true}, {"56 00", false},
		{"70 00 00 00 00", uint32(0)}, {"52 00", uint32(0)},
		{"80 00 00 00 00 00 00 00 01", uint64(1)}, {"53 00", uint64(0)},
		{"71 ff ff ff ff", int32(-1)}, {"81 ff ff ff ff ff ff ff ff", int64(-1)},
		{"b0 00 00 00 01 ff", []byte{0xff}}, {`b1 00 00 00 02 "hi"`, "hi"}, {`b3 00 00 00 02 "hi"`, Symbol("hi")},
		{"c0 01 00", List{}}, {"d0 00 00 00 04 00 00 00 00", List{}}, {"d0 00 00 00 05 00 00 00 01 40", List{nil}},
		{`d1 00 00 00 08 00 00 00 02 a1 01 "a" 40`, Map{{"a", nil}}},
		{`f0 00 00 00 08 00 00 00 01 a1 01 "a" `, nil}, // replaced below: the size is wrong
		{"f0 00 00 00 07 00 00 00 02 50 01 02", Array{uint8(1), uint8(2)}},
		{"e0 02 03 44", Array{uint64(0), uint64(0), uint64(0)}},
		{`00 80 00 00 00 00 00 00 00 24 45`, &Described{uint64(0x24), List(nil)}},
	} {
		v, rest, err := Decode(unhex(t, c.wire))
		if c.value == nil {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err, c.wire)
		require.Equal(t, c.value, v, c.wire)
		require.Empty(t, rest)
	}
}

func TestLongValues(t *testing.T) {
	long := strings.Repeat("x", 256)
	for _, c := range []struct {
		value any
		head  string
	}{
		{long, "b1 00 00 01 00"}, {Symbol(long), "b3 00 00 01 00"}, {[]byte(long), "b0 00 00 01 00"},
		{List{long}, "d0 00 00 01 09 00 00 00 01 b1"}, {Map{{long, nil}}, "d1 00 00 01 0a 00 00 00 02 b1"},
		{make(List, 256), "d0 00 00 01 04 00 00 01 00 40"}, {make(List, 254), "c0 ff fe 40"}, {make(List, 255),
			"d0 00 00 01 03 00 00 00 ff"},
		{Array{long}, "f0 00 00 01 09 00 00 00 01 b1 00 00 01 00"},
	} {
		b, err := Append(nil, c.value)
		require.NoError(t, err)
		head := unhex(t, c.head)
		require.Equal(t, head, b[:len(head)])
		v, _, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, c.value, v)
	}
}

func TestMalformedValues(t *testing.T) {
	for _, wire := range []string{
		"", "00", "00 53", "00 53 24", "01", "10", "46", "57 00", "62 00 00", "75 00 00 00 00", "85 00 00 00 00 00 00 00 00",
		"56 02", "50", "60 00", "70 00 00 00", "80 00 00 00 00 00 00 00", "98 00", "a0", "a0 01", "a2 00", "b0 00 00 00",
		"b0 00 00 00 01", "b0 80 00 00 00", "b0 ff ff ff ff",
		"a1 01 ff", "a3 01 ff", "73 00 11 00 00", "73 00 00 d8 00",
		"c0", "c0 00", "c0 02 01", "c0 01 01", "c0 02 00 40", "c0 03 01 40 40", "c0 02 05 40", "d0 00 00 00 04 ff ff ff ff",
		"d0 00 00 00 00",
		"c1 02 01 40", "c1 05 04 40 40 40 40", `c1 07 04 52 01 40 52 01 40 `, "c1 09 04 52 01 40 70 00 00 00 01 40",
		"c2 01 00", "e1 02 00 40",
		"e0 01 00", "e0 02 01 50", "e0 04 01 50 01 01", "e0 03 00 50 01", "f0 00 00 00 05 7f ff ff ff 40",
		"f0 00 00 00 05 00 00 ff ff 40", "e0 05 01 00 53 01 00", "e0 02 00 00",
	} {
		_, _, err := Decode(unhex(t, wire))
		var e *Error
		require.ErrorAs(t, err, &e, wire)
		require.Equal(t, DecodeError, e.Condition)
	}
}

func TestDepthIsBounded(t *testing.T) {
	var deep any
	for range maxDepth {
		deep = List{deep}
	}
	b, err := Append(nil, deep)
	require.NoError(t, err)
	_, _, err = Decode(b)
	require.NoError(t, err)
	_, err = Append(nil, List{deep})
	require.Error(t, err)
	_, _, err = Decode(append([]byte{codeList32, 0, 0, 0, byte(len(b) + 4), 0, 0, 0, 1}, b...))
	require.Error(t, err)
	for _, c := range []byte{0x00, 0xc0, 0xe0} {
		_, _, err = Decode([]byte(strings.Repeat(string([]byte{c}), 100000)))
		require.Error(t, err)
	}
	// Nested arrays of empty items must not multiply.
	inner := unhex(t, "e0 02 ff 40")
	body := append([]byte{0xf0, 0, 0, 0, 0, 0, 0, 0, 0, 0xe0}, []byte(strings.Repeat(string(inner[1:]), 2000))...)
	n := len(body) - 5
	body[1], body[2], body[3], body[4] = byte(n>>24), byte(n>>16), byte(n>>8), byte(n)
	body[7], body[8] = 2000>>8, 2000&255
	_, _, err = Decode(body)
	require.ErrorContains(t, err, "items")
}

// A compound may claim as many items as it has bytes. That reserves no more memory than the bound
// of all items allows, whatever nested compounds claim.
func TestClaimedItemsReserveLittleMemory(t *testing.T) {
	const size = 1 << 20
	for name, c := range map[string]struct {
		code   byte
		claims uint32
	}{
		"lists": {codeList32, size}, "lists within the bound": {codeList32, tolerantItems - 2*maxDepth},
		"maps": {codeMap32, size}, "maps within the bound": {codeMap32, tolerantItems - 2*maxDepth},
	} {
		t.Run(name, func(t *testing.T) {
			b := []byte{0, codeSmallUlong, codeValue}
			for len(b) < 9*maxDepth {
				left := uint32(size - len(b) - 9)
				b = binary.BigEndian.AppendUint32(append(b, c.code), left+4)
				b = binary.BigEndian.AppendUint32(b, min(left, c.claims)&^1)
			}
			b = append(b, bytes.Repeat([]byte{codeNull}, size-len(b))...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := DecodeTolerant(b)
			runtime.ReadMemStats(&after)
			require.Error(t, err)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(5<<20))
		})
	}
}

func TestWhatCannotBeEncoded(t *testing.T) {
	for _, v := range []any{
		int(1), "\xff", Symbol("é"), struct{}{}, List{int(1)}, Map{{int(1), nil}}, Map{{nil, int(1)}},
		Array{uint8(1), uint16(1)}, Array{int(1)},
		Array{&Described{uint64(1), uint8(1)}, uint8(1)}, Array{&Described{uint64(1), uint8(1)},
			&Described{uint64(2), uint8(1)}},
		Array{&Described{uint64(1), &Described{uint64(1), nil}}}, &Described{int(1), nil}, &Described{nil, int(1)},
		Array{"\xff"}, Array{Symbol("\xff")},
	} {
		_, err := Append(nil, v)
		require.Error(t, err, "%v", v)
	}
}

// Written by hand from the tables of the standard [2.7, 3.4, 3.5, 5.3]. Each begins with the
// frame's header: size, doff 2, type, channel.
var goldenFrames = []struct {
	channel uint16
	body    Performative
	payload string
	wire    string
}{
	{0, nil, "", "00000008 02 00 0000"},
	{0, &Open{ContainerID: "c", MaxFrameSize: maxUint32, ChannelMax: maxUint16}, "",
		`00000011 02 00 0000 00 53 10 c0 04 01 a1 01 "c"`},
	{0, &Open{ContainerID: "c", Hostname: "h", MaxFrameSize: 65536, ChannelMax: 8191, IdleTimeout: Some(uint32(240000))},
		"",
		`00000021 02 00 0000 00 53 10 c0 14 05 a1 01 "c" a1 01 "h" 70 00010000 60 1fff 70 0003a980`},
	{0, &Open{ContainerID: "c", MaxFrameSize: maxUint32, ChannelMax: maxUint16, OutgoingLocales: []Symbol{"en-US"},
		Properties: Map{{Symbol("p"),
			"v"}}}, "",
		`0000002e 02 00 0000 00 53 10 c0 21 0a a1 01 "c" 40 40 40 40 e0 0b 01 b3 00000005 "en-US" 40 40 40 c1 07 02 a3 ` +
			`01 "p" a1 01 "v"`},
	{3, &Begin{RemoteChannel: Some(uint16(3)), NextOutgoingID: 0, IncomingWindow: 2048, OutgoingWindow: 0x7fffffff,
		HandleMax: 255},
		"",
		"0000001e 02 00 0003 00 53 11 c0 11 05 60 0003 43 70 00000800 70 7fffffff 52 ff"},
	{1, &Attach{Name: "n", Handle: 1, Role: RoleReceiver, SndSettleMode: SendMixed, Source: &Source{Address: "$cbs",
		ExpiryPolicy: SessionEnd},
		Target: &Target{ExpiryPolicy: SessionEnd}}, "",
		`00000026 02 00 0001 00 53 12 c0 19 07 a1 01 "n" 52 01 41 40 40 00 53 28 c0 07 01 a1 04 "$cbs" 00 53 29 45`},
	{1, &Attach{Name: "n", Role: RoleSender, SndSettleMode: SendSettled, RcvSettleMode: ReceiveSecond,
		Target: &Coordinator{}, InitialDeliveryCount: Some(uint32(0)), MaxMessageSize: 1},
		"",
		`00000021 02 00 0001 00 53 12 c0 14 0b a1 01 "n" 43 42 50 01 50 01 40 00 53 30 45 40 40 43 53 01`},
	{0, &Flow{NextIncomingID: Some(uint32(0)), IncomingWindow: 1, NextOutgoingID: 2, OutgoingWindow: 3,
		Handle: Some(uint32(0)), DeliveryCount: Some(uint32(0)), LinkCredit: Some(uint32(100)), Drain: true},
		"",
		"0000001b 02 00 0000 00 53 13 c0 0e 09 43 52 01 52 02 52 03 43 43 52 64 40 41"},
	{0, &Transfer{DeliveryID: Some(uint32(7)), DeliveryTag: []byte{1, 2}, MessageFormat: Some(BatchFormat),
		Settled: Some(false)},
		"00 53 75 a0 00",
		"00000020 02 00 0000 00 53 14 c0 0e 05 43 52 07 a0 02 01 02 70 80 01 37 00 42 00 53 75 a0 00"},
	{0, &Transfer{Handle: 300, More: true, Aborted: true, State: &Accepted{}, RcvSettleMode: Some(ReceiveSecond)}, "",
		"00000020 02 00 0000 00 53 14 c0 13 0a 70 0000012c 40 40 40 40 41 50 01 00 53 24 45 40 41"},
	{0, &Disposition{Role: RoleReceiver, First: 1, Last: Some(uint32(3)), Settled: true, State: &Accepted{}}, "",
		"00000018 02 00 0000 00 53 15 c0 0b 05 41 52 01 52 03 41 00 53 24 45"},
	{0, &Disposition{Role: RoleSender, First: 1, State: &Rejected{Error: &Error{Condition: "a:b", Description: "d"}}}, "",
		`00000027 02 00 0000 00 53 15 c0 1a 05 42 52 01 40 40 00 53 25 c0 0f 01 00 53 1d c0 09 02 a3 03 "a:b" a1 01 "d"`},
	{0, &Disposition{Role: RoleReceiver, State: &Modified{DeliveryFailed: true, UndeliverableHere: true}}, "",
		"0000001a 02 00 0000 00 53 15 c0 0d 05 41 43 40 40 00 53 27 c0 03 02 41 41"},
	{0, &Disposition{Role: RoleReceiver, State: &Released{}}, "",
		"00000016 02 00 0000 00 53 15 c0 09 05 41 43 40 40 00 53 26 45"},
	{0, &Disposition{Role: RoleReceiver, State: &Received{1, 2}}, "",
		"0000001c 02 00 0000 00 53 15 c0 0f 05 41 43 40 40 00 53 23 c0 05 02 52 01 53 02"},
	{0, &Detach{Handle: 2, Closed: true, Error: &Error{Condition: "a:b"}}, "",
		`0000001c 02 00 0000 00 53 16 c0 0f 03 52 02 41 00 53 1d c0 06 01 a3 03 "a:b"`},
	{9, &End{}, "", "0000000c 02 00 0009 00 53 17 45"},
	{0, &Close{Error: &Error{Condition: "a:b", Info: Map{{Symbol("k"), int32(1)}}}}, "",
		`00000022 02 00 0000 00 53 18 c0 15 01 00 53 1d c0 0f 03 a3 03 "a:b" 40 c1 06 02 a3 01 "k" 54 01`},
	{0, &Mechanisms{Mechanisms: []Symbol{"PLAIN"}}, "",
		`0000001b 02 01 0000 00 53 40 c0 0e 01 e0 0b 01 b3 00000005 "PLAIN"`},
	{0, &Init{Mechanism: "PLAIN", InitialResponse: []byte("\x00u\x00p")}, "",
		`0000001b 02 01 0000 00 53 41 c0 0e 02 a3 05 "PLAIN" a0 04 00 "u" 00 "p"`},
	{0, &Challenge{Challenge: []byte{1}}, "", "00000011 02 01 0000 00 53 42 c0 04 01 a0 01 01"},
	{0, &Response{Response: []byte{1}}, "", "00000011 02 01 0000 00 53 43 c0 04 01 a0 01 01"},
	{0, &Outcome{Code: SASLAuth}, "", "00000010 02 01 0000 00 53 44 c0 03 01 50 01"},
}

func TestGoldenFrames(t *testing.T) {
	for _, c := range goldenFrames {
		want, payload := unhex(t, c.wire), unhex(t, c.payload)
		got, err := AppendFrame(nil, c.channel, c.body, payload)
		require.NoError(t, err)
		require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got), "%#v", c.body)
		f, n, err := Split(append(want, 0xee), math.MaxUint32)
		require.NoError(t, err)
		require.Equal(t, len(want), n)
		require.Equal(t, c.channel, f.Channel)
		if c.body == nil {
			require.Empty(t, f.Body)
			continue
		}
		p, rest, err := f.Performative()
		require.NoError(t, err)
		require.Equal(t, c.body, p)
		require.Equal(t, string(payload), string(rest))
		for cut := range want {
			_, n, err := Split(want[:cut], math.MaxUint32)
			require.NoError(t, err)
			require.Zero(t, n, "a frame cut short at %d", cut)
		}
	}
}

func TestFramesThatMakeNoSense(t *testing.T) {
	for _, c := range []string{"00000000", "00000007", "00000201 02 00 0000", "ffffffff", "00000008 01 00 0000",
		"00000008 03 00 0000", "00000008 02 02 0000", "00000010 ff 00 0000"} {
		_, _, err := Split(unhex(t, c), 512)
		var e *Error
		require.ErrorAs(t, err, &e, c)
		require.Equal(t, FramingError, e.Condition)
	}
	// An extended header is skipped.
	f, n, err := Split(unhex(t, "00000010 03 00 0001 deadbeef 00531745"), 512)
	require.NoError(t, err)
	require.Equal(t, 16, n)
	p, _, err := f.Performative()
	require.NoError(t, err)
	require.Equal(t, &End{}, p)
}

func TestBodiesThatMakeNoSense(t *testing.T) {
	for wire, condition := range map[string]Symbol{
		"40": DecodeError, "45": DecodeError, "00 53 10 40": DecodeError, "00 53 19 45": DecodeError,
		"00 a1 01 41 45":          DecodeError,
		"00 53 44 c0 03 01 50 01": DecodeError,
		"00 53 10 45":             InvalidField, "00 53 10 c0 02 01 40": InvalidField,
		"00 53 11 c0 05 04 40 43 43 40":                          InvalidField,
		"00 53 10 c0 02 01 43":                                   DecodeError, // container id is no string
		"00 53 17 c0 02 01 41":                                   DecodeError, // error is no composite
		"00 53 17 c0 05 01 00 53 24 45":                          DecodeError, // but another composite
		"00 53 17 c0 03 02 40 40":                                DecodeError, // a field too many
		"00 53 17 45 40":                                         DecodeError, // bytes behind it
		`00 53 10 c0 0b 06 a1 01 "c" 40 40 40 40 a1 01 "x"`:      DecodeError, // a locale is a symbol
		`00 53 10 c0 0c 06 a1 01 "c" 40 40 40 40 e0 03 01 50 01`: DecodeError,
		"00 53 12 c0 0c 07 a1 01 6e 43 41 40 40 40 00 53 28 45":  DecodeError, // a source for a target
	} {
		_, _, err := Frame{Body: unhex(t, wire)}.Performative()
		var e *Error
		require.ErrorAs(t, err, &e, wire)
		require.Equal(t, condition, e.Condition, "%s: %v", wire, err)
	}
}

func TestSymbolicDescriptorsAreRead(t *testing.T) {
	p, _, err := Frame{Body: unhex(t, `00 a3 0d "amqp:end:list" 45`)}.Performative()
	require.NoError(t, err)
	require.Equal(t, &End{}, p)
	p, _, err = Frame{Type: FrameSASL, Body: unhex(t, `00 a3 13 "amqp:sasl-init:list" c0 03 01 a3 00`)}.Performative()
	require.NoError(t, err)
	require.Equal(t, &Init{}, p)
	// One symbol in place of an array of symbols.
	p, _, err = Frame{Type: FrameSASL, Body: unhex(t, `00 53 40 c0 04 01 a3 01 "X"`)}.Performative()
	require.NoError(t, err)
	require.Equal(t, &Mechanisms{Mechanisms: []Symbol{"X"}}, p)
}

// Written by hand from [3.2].
var goldenMessages = []struct {
	message *Message
	wire    string
}{
	{&Message{}, ""},
	{&Message{Data: [][]byte{[]byte("hi")}}, `00 53 75 a0 02 "hi"`},
	{&Message{Data: [][]byte{{1}, {2}}}, "00 53 75 a0 01 01 00 53 75 a0 01 02"},
	{&Message{Sequence: []List{{nil}}}, "00 53 76 c0 02 01 40"},
	{&Message{Value: "t", HasValue: true}, `00 53 77 a1 01 "t"`},
	{&Message{HasValue: true}, "00 53 77 40"},
	{&Message{Header: &Header{Durable: true, Priority: 4, TTL: Some(uint32(1)), DeliveryCount: 2}, Data: [][]byte{{}}},
		"00 53 70 c0 08 05 41 40 52 01 40 52 02 00 53 75 a0 00"},
	{&Message{
		DeliveryAnnotations: Map{{Symbol("d"), true}}, MessageAnnotations: Map{{Symbol("x-opt-sequence-number"), uint64(5)},
			{uint64(1), nil}},
		Properties: &Properties{MessageID: UUID{15: 1}, UserID: []byte("u"), To: Some("t"),
			CorrelationID: uint64(7), ContentType: "c", AbsoluteExpiryTime: Some(Timestamp(1)), GroupSequence: Some(uint32(0))},
		ApplicationProperties: Map{{"status-code", int32(200)}}, Data: [][]byte{{0xff}}, Footer: Map{},
	}, `00 53 71 c1 05 02 a3 01 "d" 41
		00 53 72 c1 1d 04 a3 15 "x-opt-sequence-number" 53 05 53 01 40
		00 53 73 c0 2c 0c 98 00000000 00000000 00000000 00000001 a0 01 "u" a1 01 "t" 40 40 53 07
		a3 01 "c" 40 83 0000000000000001 40 40 43
		00 53 74 c1 13 02 a1 0b "status-code" 71 000000c8
		00 53 75 a0 01 ff
		00 53 78 c1 01 00`},
}

func TestGoldenMessages(t *testing.T) {
	for _, c := range goldenMessages {
		want := unhex(t, strings.NewReplacer("\n", "", "\t", "").Replace(c.wire))
		got, err := AppendMessage(nil, c.message)
		require.NoError(t, err)
		require.Equal(t, hex.EncodeToString(want), hex.EncodeToString(got))
		back, err := DecodeMessage(want)
		require.NoError(t, err)
		require.Equal(t, c.message, back)
	}
	require.Equal(t, "abc", string((&Message{Data: [][]byte{[]byte("a"), []byte("bc")}}).Body()))
}

func TestMessagesThatMakeNoSense(t *testing.T) {
	for _, wire := range []string{
		"40", "00 53 6f 40", "00 53 79 40", "00 53 75 45", "00 53 76 40", "00 53 70 40", "00 53 72 45", "00 53 74 40",
		"00 53 78 40",
		"00 53 75 a0 00 00 53 70 45", "00 53 70 45 00 53 70 45", "00 53 77 40 00 53 77 40", "00 53 75 a0 00 00 53 77 40",
		"00 53 75 a0 00 00 53 76 45",
		`00 53 74 c1 05 02 a3 01 "a" 40`, `00 53 74 c1 05 02 a1 01 "a" 45`, `00 53 72 c1 05 02 a1 01 "a" 40`,
		"00 53 73 c0 02 01 41", "00 53 73 c0 03 02 40 41", "00 53 75 a0 01",
	} {
		_, err := DecodeMessage(unhex(t, wire))
		var e *Error
		require.ErrorAs(t, err, &e, wire)
		require.Equal(t, DecodeError, e.Condition)
	}
}

// An error names no more than the beginning of what the peer sent, which may have 16 MiB.
func TestErrorsOfLargeValuesAreShort(t *testing.T) {
	large := bytes.Repeat([]byte{0xff}, 1<<20)
	text := func(code byte) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{code}, uint32(len(large))), large...)
	}
	properties := func(code byte) []byte {
		b := binary.BigEndian.AppendUint32([]byte{0, codeSmallUlong, codeProperties, codeList32}, uint32(len(large)+9))
		return append(binary.BigEndian.AppendUint32(b, 1), text(code)...)
	}
	appended := func(v any) []byte {
		b, err := Append(nil, v)
		require.NoError(t, err)
		return b
	}
	name := strings.Repeat("x", len(large))
	for kind, b := range map[string][]byte{
		"string":     properties(codeString32),
		"symbol":     properties(codeSymbol32),
		"map key":    appended(Map{{large, nil}, {large, nil}}),
		"section":    appended(&Described{large, List{}}),
		"property":   appended(&Described{uint64(codeApplicationProperties), Map{{name, List{}}}}),
		"descriptor": appended(&Described{large, List{}}),
	} {
		_, err := DecodeMessage(b)
		if kind == "descriptor" {
			_, _, err = Frame{Body: b}.Performative()
		}
		require.Error(t, err, kind)
		require.Less(t, len(err.Error()), 1000, kind)
	}
}

func TestMapsAndTexts(t *testing.T) {
	m := Map{{Symbol("a"), "x"}, {"b", Symbol("y")}, {uint64(1), "z"}}
	require.Equal(t, "x", m.Text("a"))
	require.Equal(t, "y", m.Text("b"))
	require.Empty(t, m.Text("c"))
	_, ok := m.Get("c")
	require.False(t, ok)
	require.Equal(t, "01020304-0506-0708-090a-0b0c0d0e0f10", UUID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
		16}.String())
	require.Equal(t, "a:b: c", Errorf("a:b", "c").Error())
	require.Equal(t, "a:b", (&Error{Condition: "a:b"}).Error())
}
