package amqp

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/internal/bounded"
	"github.com/hubline-iot/hubline/transport"
)

// poison is a message with an annotation whose key is a list.
var poison = []byte{0, 0x53, 0x72, 0xc1, 4, 2, 0xc0, 1, 0, 0x40, 0, 0x53, 0x75, 0xa0, 1, 'x'}

// deepPoison has it one level down, and the key is a described value that holds a list.
var deepPoison = []byte{0, 0x53, 0x77, 0xc1, 10, 2, 0x54, 1, 0xc1, 5, 2, 0, 0xa3, 0, 0x45, 0x40}

// The library has the fault that the screen is for.
func TestTheLibraryPanics(t *testing.T) {
	require.Panics(t, func() { _ = new(amqp.Message).UnmarshalBinary(poison) })
	require.Panics(t, func() { _ = new(amqp.Message).UnmarshalBinary(deepPoison) })
}

// talk is a screen between a library and a peer, which have opened the connection and begun a
// session on channel 1, with a link on which this side sends (handles 0 and 10) and one on which it
// receives (1 and 11), for five messages.
type talk struct {
	screen
	t testing.TB
}

func newTalk(t testing.TB) *talk {
	s := &talk{t: t}
	s.say([]byte("AMQP\x00\x01\x00\x00"))
	s.header(wire.ProtocolAMQP)
	s.good(0, &wire.Open{ContainerID: "hub", MaxFrameSize: maxFrame, ChannelMax: 9})
	s.saying(1, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000})
	s.good(1, &wire.Begin{RemoteChannel: wire.Some(uint16(1)), IncomingWindow: 5000, OutgoingWindow: 5000})
	s.saying(1, &wire.Attach{Name: "out", Handle: 0, Role: wire.RoleSender, Source: &wire.Source{},
		Target: &wire.Target{}})
	s.good(1, &wire.Attach{Name: "out", Handle: 10, Role: wire.RoleReceiver, Source: &wire.Source{},
		Target: &wire.Target{}})
	s.saying(1, &wire.Attach{Name: "in", Handle: 1, Role: wire.RoleReceiver, Source: &wire.Source{},
		Target: &wire.Target{}})
	s.good(1, &wire.Attach{Name: "in", Handle: 11, Role: wire.RoleSender, Source: &wire.Source{}, Target: &wire.Target{}})
	s.saying(1, &wire.Flow{IncomingWindow: 5000, OutgoingWindow: 5000, Handle: wire.Some(uint32(1)),
		DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(5))})
	return s
}

func encode(t testing.TB, channel uint16, p wire.Performative, payload []byte) []byte {
	b, err := wire.AppendFrame(nil, channel, p, payload)
	require.NoError(t, err)
	return b
}

// say has this side send something.
func (s *talk) say(b []byte)                               { s.note(b) }
func (s *talk) saying(channel uint16, p wire.Performative) { s.say(encode(s.t, channel, p, nil)) }

// send has this side send n messages.
func (s *talk) send(n int) {
	first := s.local[1].out.next
	for i := range n {
		s.say(encode(s.t, 1, &wire.Transfer{DeliveryID: wire.Some(first + uint32(i)), DeliveryTag: []byte{1},
			MessageFormat: wire.Some(uint32(0))}, []byte("x")))
	}
}

// hear has the peer send something.
func (s *talk) hear(b []byte) ([]byte, error) {
	out, err := s.unit(bytes.Clone(b))
	if err == nil && len(out) > 0 {
		f, n, bad := wire.Split(out, math.MaxUint32)
		require.NoError(s.t, bad)
		require.Len(s.t, out, n)
		_, _, bad = f.Performative()
		require.NoError(s.t, bad)
	}
	return out, err
}

// good has the peer send something that goes on as it is.
func (s *talk) good(channel uint16, p wire.Performative, payload ...byte) {
	s.t.Helper()
	b := encode(s.t, channel, p, payload)
	out, err := s.hear(b)
	require.NoError(s.t, err)
	require.Equal(s.t, b, out)
}

// bad has the peer send something that ends the connection, with a reason.
func (s *talk) bad(b []byte, reason string) {
	s.t.Helper()
	_, err := s.hear(b)
	bad, ok := errors.AsType[*violation](err)
	require.True(s.t, ok, "%v", err)
	require.ErrorContains(s.t, bad, reason)
	require.ErrorIs(s.t, bad, transport.ErrViolation)
}

// rewritten has the peer send something, and returns what goes on in its place.
func (s *talk) rewritten(b []byte) wire.Performative {
	s.t.Helper()
	out, err := s.hear(b)
	require.NoError(s.t, err)
	require.NotEqual(s.t, b, out)
	f, n, err := wire.Split(out, math.MaxUint32)
	require.NoError(s.t, err)
	require.Equal(s.t, len(out), n)
	p, _, err := f.Performative()
	require.NoError(s.t, err)
	return p
}

func unhex(t testing.TB, text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	require.NoError(t, err)
	return b
}

// delivery is the first transfer of a message.
func delivery(id uint32, more bool) *wire.Transfer {
	return &wire.Transfer{Handle: 11, DeliveryID: wire.Some(id), DeliveryTag: []byte{1},
		MessageFormat: wire.Some(uint32(0)), More: more}
}

func TestMessagesAreCheckedWhole(t *testing.T) {
	good, err := wire.AppendMessage(nil, &wire.Message{
		MessageAnnotations: wire.Map{{Key: wire.Symbol("k"), Value: wire.List{nil, wire.Map{{Key: "a", Value: uint32(1)}}}}},
		Data:               [][]byte{[]byte("hello")},
	})
	require.NoError(t, err)
	type say struct {
		p       wire.Performative
		payload []byte
	}
	rest := &wire.Transfer{Handle: 11}
	for name, c := range map[string]struct {
		say []say
		bad string // the last one
	}{
		"good":            {[]say{{delivery(7, false), good}}, ""},
		"poison":          {[]say{{delivery(7, false), poison}}, "key"},
		"deep poison":     {[]say{{delivery(7, false), deepPoison}}, "key"},
		"poison in parts": {[]say{{delivery(7, true), poison[:5]}, {rest, poison[5:]}}, "key"},
		"good in parts":   {[]say{{delivery(7, true), good[:5]}, {rest, good[5:]}, {delivery(8, false), good}}, ""},
		"aborted": {[]say{{delivery(7, true), poison}, {&wire.Transfer{Handle: 11, Aborted: true}, nil},
			{delivery(8, false), good}},
			""},
		"given up": {[]say{{delivery(7, true), good[:5]}, {delivery(8, false), good}},
			"delivery-id: 8 before the end of 7"},
		"out of sequence": {[]say{{delivery(7, false), good}, {delivery(9, false), good}}, "delivery-id: 9, not 8"},
		"without id":      {[]say{{rest, good}}, "delivery-id: missing"},
		"without tag": {[]say{{&wire.Transfer{Handle: 11, DeliveryID: wire.Some(uint32(1)),
			MessageFormat: wire.Some(uint32(0))}, good}},
			"delivery-tag: missing"},
		"without format": {[]say{{&wire.Transfer{Handle: 11, DeliveryID: wire.Some(uint32(1)), DeliveryTag: []byte{1}},
			good}},
			"message-format: missing"},
		"a long tag": {[]say{{&wire.Transfer{Handle: 11, DeliveryTag: make([]byte, 33)}, good}},
			"delivery-tag: 33 is not from 0 to 32"},
		"resumed": {[]say{{&wire.Transfer{Handle: 11, DeliveryID: wire.Some(uint32(1)), Resume: true}, good}},
			"resume"},
		"on no link":      {[]say{{&wire.Transfer{Handle: 12}, good}}, "handle: 12, which is not in use"},
		"on a link out":   {[]say{{&wire.Transfer{Handle: 10}, good}}, "handle: 10, on which nothing is received"},
		"without session": {[]say{{&wire.Transfer{Handle: 99}, good}}, "handle: 99"},
		"cut short":       {[]say{{delivery(7, false), good[:len(good)-1]}}, "cut short"},
		"no section":      {[]say{{delivery(7, false), []byte{0x40}}}, "not a section"},
		"sections twice":  {[]say{{delivery(7, false), append(bytes.Clone(good), good...)}}, "behind data"},
		"two bodies": {[]say{{delivery(7, false), append(bytes.Clone(good), 0, 0x53, 0x77, 0x40)}},
			"amqp-value: behind data"},
		"a wrong section": {[]say{{delivery(7, false), unhex(t, "00 53 75 41")}}, "data: wrong type"},
		"a wrong field": {[]say{{delivery(7, false), unhex(t, "00 53 70 c0 02 01 44")}},
			"header, durable: wrong type"},
		"keys of properties": {[]say{{delivery(7, false), unhex(t, "00 53 74 c1 03 02 44 41")}},
			"application-properties: a key of a wrong type"},
		"nested without end": {[]say{{delivery(7, false), append(unhex(t, "00 53 77"), bytes.Repeat([]byte{0, 0x44},
			40)...)}},
			"deep"},
		"many in little": {[]say{{delivery(7, false), append(unhex(t, "00 53 77 f0 00 00 00 05 7f ff ff ff 43"), 0)}},
			"too many items"},
		"without credit": {[]say{{delivery(1, false), good}, {delivery(2, false), good}, {delivery(3, false), good},
			{delivery(4, false), good}, {delivery(5, false), good}, {delivery(6, false), good}},
			"without credit"},
		"a char, as it may be": {[]say{{delivery(7, false), unhex(t, "00 53 77 73 00 00 00 41")}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTalk(t)
			for i, x := range c.say {
				if c.bad != "" && i == len(c.say)-1 {
					s.bad(encode(t, 1, x.p, x.payload), c.bad)
					return
				}
				s.good(1, x.p, x.payload...)
			}
			require.Zero(t, s.parts)
		})
	}
}

// raw is a frame on channel 1 with any fields.
func raw(t testing.TB, code uint64, fields ...any) []byte {
	body, err := wire.Append(nil, &wire.Described{Descriptor: code, Value: wire.List(fields)})
	require.NoError(t, err)
	return framed(body)
}

func framed(body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return append(append(b, 2, 0, 0, 1), body...)
}

// Each of these frames is refused, at whatever depth its fault is.
func TestFramesAreCheckedWhole(t *testing.T) {
	const n = uint32(0)
	badKey := wire.Map{{Key: &wire.Described{Descriptor: wire.Symbol("x"), Value: wire.List{}}, Value: nil}}
	deepKey := wire.Map{{Key: wire.Symbol("x"), Value: wire.List{badKey}}}
	composite := func(code uint64, fields ...any) *wire.Described {
		return &wire.Described{Descriptor: code, Value: wire.List(fields)}
	}
	props := func(m any) []any { return []any{n, n, n, n, nil, nil, nil, nil, nil, nil, m} }
	for name, c := range map[string]struct {
		frame  []byte
		reason string
	}{
		"key in disposition": {raw(t, codeDisposition, true, n, n, true, composite(0x27, nil, nil, badKey)),
			"disposition, state: map with a key that is no simple value"},
		"key in flow":       {raw(t, codeFlow, props(badKey)...), "flow, properties: map with a key"},
		"key in flow, deep": {raw(t, codeFlow, props(deepKey)...), "flow, properties: map with a key"},
		"key in close": {raw(t, codeClose, composite(0x1d, wire.Symbol("x"), nil, deepKey)),
			"close, error: map with a key"},
		"key in end": {raw(t, codeEnd, composite(0x1d, wire.Symbol("x"), nil, deepKey)),
			"end, error: map with a key"},
		"key in detach": {raw(t, codeDetach, uint32(11), true, composite(0x1d, wire.Symbol("x"), nil, deepKey)),
			"detach, error: map with a key"},
		"key in transfer": {raw(t, codeTransfer, uint32(11), n, []byte("t"), n, true, false, nil, composite(0x27, nil, nil,
			badKey)),
			"transfer, state: map with a key"},
		"key in begin": {raw(t, codeBegin, uint16(1), n, n, n, nil, nil, nil, deepKey),
			"begin, properties: map with a key"},
		"key in attach": {raw(t, codeAttach, "in", uint32(11), false, nil, nil, composite(0x28, nil, nil, nil, nil, nil, nil,
			nil, badKey)),
			"attach, source: map with a key"},
		"a number for a key": {raw(t, codeFlow, props(wire.Map{{Key: int32(1), Value: nil}})...),
			"flow, properties: a key of a wrong type"},
		"two nulls":       {framed([]byte{0x40, 0x40}), "not a composite"},
		"a name":          {framed(append([]byte("\x00\xa3\x0famqp:close:list"), 0x45)), "not a composite"},
		"not a list":      {framed([]byte{0, 0x53, codeClose, 0xa0, 0}), "not a list"},
		"open again":      {raw(t, codeOpen, "x"), "0x10, which cannot come here"},
		"sasl":            {raw(t, codeOutcome, uint8(0)), "0x44, which cannot come here"},
		"too many fields": {raw(t, codeEnd, nil, nil), "end: 2 fields of at most 1"},
		"list cut short":  {framed([]byte{0, 0x53, codeEnd, 0xc0, 9, 1, 0x40}), "cut short"},
		"bytes behind":    {framed([]byte{0, 0x53, codeEnd, 0x45, 0x40}), "1 bytes behind it"},
		"bytes in the list": {framed([]byte{0, 0x53, codeEnd, 0xc0, 3, 1, 0x40, 0x40}),
			"1 bytes behind the last field"},
		"an unknown state": {raw(t, codeDisposition, true, n, n, true, composite(0x34, []byte("t"))),
			"disposition, state: composite 0x34"},
		"a decimal": {raw(t, codeFlow, props(wire.Map{{Key: "x", Value: wire.Decimal32{}}})...),
			"not supported"},
		"an array of empty values": {framed(unhex(t,
			"00 53 13 c0 15 0b 43434343 404040404040 c1 08 02 a1 01 78 e0 02 02 43")),
			"not supported"},
		"an array of lists": {raw(t, codeFlow, props(wire.Map{{Key: "x", Value: wire.Array{wire.List{n}}}})...),
			"not supported"},
		"attach of nothing":       {raw(t, codeAttach, "x", n, false), "name: not that of a link"},
		"handle twice":            {raw(t, codeAttach, "in", uint32(11), false), "handle: 11, which is in use"},
		"attach again":            {raw(t, codeAttach, "in", uint32(12), false), "name: not that of a link"},
		"attach in the role here": {raw(t, codeAttach, "in", uint32(12), true), "name: not that of a link"},
		"a settle mode":           {raw(t, codeAttach, "in", n, false, uint8(3)), "snd-settle-mode: 3 is not from 0 to 2"},
		"a policy": {raw(t, codeAttach, "in", n, false, nil, nil, composite(0x28, nil, nil, wire.Symbol("x"))),
			"expiry-policy: not one of"},
		"unsettled deliveries": {raw(t, codeAttach, "in", n, false, nil, nil, nil, nil, wire.Map{{Key: "x", Value: "y"}}),
			"unsettled: an item of a wrong type"},
		"begin of nothing":        {raw(t, codeBegin, uint16(5), n, n, n), "remote-channel: 5"},
		"begin not answered":      {raw(t, codeBegin, nil, n, n, n), "remote-channel: missing"},
		"begin again":             {raw(t, codeBegin, uint16(1), n, n, n), "remote-channel: 1"},
		"detach of nothing":       {raw(t, codeDetach, uint32(5)), "handle: 5, which is not in use"},
		"flow of nothing":         {raw(t, codeFlow, n, n, n, n, uint32(5)), "handle: 5, which is not in use"},
		"flow without window":     {raw(t, codeFlow, n, nil, n, n), "incoming-window: missing"},
		"disposition backwards":   {raw(t, codeDisposition, true, uint32(5), n), "last: 0, before the first, 5"},
		"an error without reason": {raw(t, codeEnd, composite(0x1d)), "end, error, error, condition: missing"},
		"a truth of two": {framed([]byte{0, 0x53, codeDisposition, 0xc0, 4, 2, 0x56, 2, 0x43}),
			"role: boolean 0x02"},
	} {
		t.Run(name, func(t *testing.T) { newTalk(t).bad(c.frame, c.reason) })
	}
	newTalk(t).bad(encode(t, 2, &wire.End{}, nil), "end: channel 2 has no session")
	begun := newTalk(t)
	begun.saying(5, &wire.Begin{})
	begun.bad(encode(t, 1, &wire.Begin{RemoteChannel: wire.Some(uint16(5))}, nil), "begin: channel 1 has a session")
}

// The library looks at neither: it takes a frame of type 1, or the bytes of an extended header, for
// a performative.
func TestFrameTypeAndDataOffsetAreChecked(t *testing.T) {
	b := encode(t, 1, delivery(7, false), poison)
	typed := bytes.Clone(b)
	typed[5] = 1
	newTalk(t).bad(typed, "frame, type: 1, not 0")
	extended := func(b []byte) []byte {
		b = append(append(bytes.Clone(b[:8]), 0, 0x53, 0x17, 0x45), b[8:]...)
		b[4] = 3
		binary.BigEndian.PutUint32(b, uint32(len(b)))
		return b
	}
	newTalk(t).bad(extended(b), "key")
	for _, offset := range []byte{0, 1, 200} {
		odd := bytes.Clone(b)
		odd[4] = offset
		newTalk(t).bad(odd, "data offset")
	}
	good := encode(t, 1, delivery(7, false), []byte{0, 0x53, 0x75, 0xa0, 1, 'x'})
	out, err := newTalk(t).hear(extended(good))
	require.NoError(t, err)
	f, _, err := wire.Split(out, maxFrame)
	require.NoError(t, err)
	require.EqualValues(t, 2, out[4], "an extended header is legal: it is left out")
	p, payload, err := f.Performative()
	require.NoError(t, err)
	require.Equal(t, wire.Performative(delivery(7, false)), p)
	require.Equal(t, []byte{0, 0x53, 0x75, 0xa0, 1, 'x'}, payload)
	out, err = newTalk(t).hear([]byte{0, 0, 0, 8, 2, 0, 0, 0})
	require.NoError(t, err)
	require.Empty(t, out, "the library would keep it")
}

// The library reads the credit of a link without asking whether there is one.
func TestAFlowWithoutCreditKeepsTheCredit(t *testing.T) {
	s := newTalk(t)
	s.good(1, &wire.Flow{NextIncomingID: wire.Some(uint32(0)), Handle: wire.Some(uint32(10)),
		DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(9))})
	s.send(4)
	f := s.rewritten(unhex(t, "00 00 00 15 02 00 00 01 00 53 13 c0 08 05 52 04 43 43 43 52 0a")).(*wire.Flow)
	require.Equal(t, wire.Some(uint32(0)), f.DeliveryCount)
	require.Equal(t, wire.Some(uint32(9)), f.LinkCredit)
	f = s.rewritten(encode(t, 1, &wire.Flow{NextIncomingID: wire.Some(uint32(4)), Handle: wire.Some(uint32(10)),
		DeliveryCount: wire.Some(uint32(4))}, nil)).(*wire.Flow)
	require.Equal(t, wire.Some(uint32(5)), f.LinkCredit, "four of nine were used")
	f = s.rewritten(encode(t, 1, &wire.Flow{NextIncomingID: wire.Some(uint32(4)), Handle: wire.Some(uint32(10)),
		DeliveryCount: wire.Some(uint32(1)), LinkCredit: wire.Some(uint32(2))}, nil)).(*wire.Flow)
	require.Equal(t, wire.Some(uint32(3)), f.LinkCredit, "less than what was used already is none: 1 + 3 = 4")
	s.good(1, &wire.Flow{NextIncomingID: wire.Some(uint32(4)), Handle: wire.Some(uint32(10)),
		DeliveryCount: wire.Some(uint32(4)), LinkCredit: wire.Some(uint32(math.MaxUint32))})
	f = s.rewritten(unhex(t, "00 00 00 15 02 00 00 01 00 53 13 c0 08 05 52 04 43 43 43 52 0a")).(*wire.Flow)
	require.Equal(t, wire.Some(uint32(4)), f.DeliveryCount)
	require.Equal(t, wire.Some(uint32(math.MaxUint32)), f.LinkCredit)
	// where this side receives, nothing is needed
	s.good(1, &wire.Flow{NextIncomingID: wire.Some(uint32(4)), Handle: wire.Some(uint32(11))})
}

// The library looks at each number of a range, and never ends when the last one is the largest that
// there is.
func TestADispositionNamesNoMoreThanWasSent(t *testing.T) {
	endless := func(first, last uint32) []byte {
		return encode(t, 1, &wire.Disposition{Role: wire.RoleReceiver, First: first, Last: wire.Some(last), Settled: true,
			State: &wire.Accepted{}}, nil)
	}
	s := newTalk(t)
	s.send(3)
	s.bad(endless(0, math.MaxUint32), "last: 4294967295, before the first, 0")
	s = newTalk(t)
	s.send(3)
	ours := s.rewritten(endless(0, math.MaxInt32)).(*wire.Disposition)
	require.Equal(t, wire.Some(uint32(2)), ours.Last)
	for _, first := range []uint32{3, 1 << 30, 1 << 31, math.MaxUint32 - 1} {
		out, err := s.hear(endless(first, first+1))
		require.NoError(t, err)
		require.Empty(t, out, "they were not sent")
	}
	s = newTalk(t)
	s.send(200)
	s.good(1, &wire.Disposition{Role: wire.RoleReceiver, First: 0, Last: wire.Some(uint32(99)), Settled: true,
		State: &wire.Accepted{}})
	out, err := s.hear(endless(0, 99))
	require.NoError(t, err)
	require.Empty(t, out, "they are settled")
	s.good(1, &wire.Disposition{Role: wire.RoleReceiver, First: 150, Settled: true})
	d := s.rewritten(endless(0, 150)).(*wire.Disposition)
	require.Equal(t, uint32(100), d.First)
	require.Equal(t, wire.Some(uint32(149)), d.Last)
	s.send(2000)
	s.bad(encode(t, 1, &wire.Disposition{Role: wire.RoleReceiver, First: 151, Last: wire.Some(uint32(2199)),
		State: &wire.Accepted{}}, nil),
		"2049 deliveries")

	s = newTalk(t)
	for id := range uint32(2) {
		s.good(1, delivery(math.MaxUint32-2+id, false))
	}
	s.saying(1, &wire.Disposition{Role: wire.RoleReceiver, First: math.MaxUint32 - 1, Settled: true})
	mine := &wire.Disposition{Role: wire.RoleSender, First: math.MaxUint32 - 2, Settled: true}
	s.good(1, mine)
	out, err = s.hear(encode(t, 1, mine, nil))
	require.NoError(t, err)
	require.Empty(t, out)
	s.bad(encode(t, 1, delivery(math.MaxUint32, false), nil), "delivery-id: 4294967295, the last number")

	s = newTalk(t)
	last := &wire.Transfer{DeliveryID: wire.Some(uint32(math.MaxUint32)), DeliveryTag: []byte{1},
		MessageFormat: wire.Some(uint32(0))}
	s.say(encode(t, 1, last, []byte("x")))
	s.bad(encode(t, 1, &wire.Disposition{Role: wire.RoleReceiver, First: math.MaxUint32, Settled: true}, nil), "used up")
}

// A message without an end does not fill the memory, and neither do many.
func TestMessagesWithoutEndsAreCutOff(t *testing.T) {
	s := newTalk(t)
	b := encode(t, 1, delivery(7, true), make([]byte, maxFrame-100))
	for sent := 0; ; sent += maxFrame - 100 {
		if _, err := s.hear(b); err != nil {
			require.ErrorContains(t, err, "message: ")
			require.InDelta(t, maxMessage, sent, maxFrame)
			break
		}
		require.LessOrEqual(t, sent, maxMessage)
	}

	s = newTalk(t)
	sent, refused := 0, false
	for link := range uint32(2000) {
		s.saying(1, &wire.Attach{Name: strings.Repeat("i", int(link)+1), Handle: 2 + link, Role: wire.RoleReceiver})
		s.good(1, &wire.Attach{Name: strings.Repeat("i", int(link)+1), Handle: 100 + link, Role: wire.RoleSender,
			Source: &wire.Source{}})
		s.saying(1, &wire.Flow{Handle: wire.Some(2 + link), DeliveryCount: wire.Some(uint32(0)),
			LinkCredit: wire.Some(uint32(5))})
		part := delivery(link, true)
		part.Handle = 100 + link
		payload := make([]byte, maxFrame-100)
		if _, err := s.hear(encode(t, 1, part, payload)); err != nil {
			require.ErrorContains(t, err, "messages without their ends")
			refused = true
			break
		}
		sent += len(payload)
	}
	require.True(t, refused)
	require.InDelta(t, maxParts, sent, maxFrame)
}

// A message is no larger than what was asked for when its link was attached.
func TestALinksOwnLimitHolds(t *testing.T) {
	s := newTalk(t)
	s.saying(1, &wire.Attach{Name: "small", Handle: 2, Role: wire.RoleReceiver, MaxMessageSize: 100})
	s.good(1, &wire.Attach{Name: "small", Handle: 12, Role: wire.RoleSender, Source: &wire.Source{}})
	s.saying(1, &wire.Flow{Handle: wire.Some(uint32(2)), LinkCredit: wire.Some(uint32(5)),
		DeliveryCount: wire.Some(uint32(0))})
	large := delivery(0, false)
	large.Handle = 12
	s.bad(encode(t, 1, large, make([]byte, 101)), "message: 101 bytes, at most 100")
}

// The library keeps what comes on a link that it has given up.
func TestFlowsWithoutEndAreCutOff(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		s := newTalk(t)
		b := encode(t, 1, &wire.Flow{NextIncomingID: wire.Some(uint32(0)), Handle: wire.Some(uint32(11))}, nil)
		for range 3 {
			for range maxFlows {
				_, err := s.hear(b)
				require.NoError(t, err)
			}
			time.Sleep(flowTime + 1)
		}
		for range maxFlows {
			_, err := s.hear(b)
			require.NoError(t, err)
		}
		s.bad(b, "flows on a link on which nothing is sent")
	})
}

// A link that the peer refused is detached, and nothing else.
func TestARefusedLinkIsDetached(t *testing.T) {
	for name, p := range map[string]wire.Performative{
		"flow":     &wire.Flow{Handle: wire.Some(uint32(12))},
		"transfer": func() wire.Performative { d := delivery(0, false); d.Handle = 12; return d }(),
	} {
		t.Run(name, func(t *testing.T) {
			s := newTalk(t)
			s.saying(1, &wire.Attach{Name: "no", Handle: 2, Role: wire.RoleReceiver})
			s.good(1, &wire.Attach{Name: "no", Handle: 12, Role: wire.RoleSender})
			s.bad(encode(t, 1, p, nil), "handle: 12")
		})
	}
	s := newTalk(t)
	s.saying(1, &wire.Attach{Name: "no", Handle: 2, Role: wire.RoleReceiver})
	s.good(1, &wire.Attach{Name: "no", Handle: 12, Role: wire.RoleSender})
	s.good(1, &wire.Detach{Handle: 12, Closed: true, Error: wire.Errorf(wire.NotFound, "x")})
	s.bad(encode(t, 1, &wire.Detach{Handle: 12, Closed: true}, nil), "handle: 12, which is not in use")
}

// The library knows no detach that does not close.
func TestEachDetachCloses(t *testing.T) {
	d := newTalk(t).rewritten(encode(t, 1, &wire.Detach{Handle: 11, Error: wire.Errorf(wire.DetachForced, "x")}, nil)).(*wire.Detach)
	require.Equal(t, &wire.Detach{Handle: 11, Closed: true, Error: wire.Errorf(wire.DetachForced, "x")}, d)
}

// A short idle time-out would have the library write all the time.
func TestAShortIdleTimeoutIsMadeLonger(t *testing.T) {
	for given, want := range map[uint32]uint32{1: 1000, 999: 1000, 1000: 1000, 60_000: 60_000} {
		s := &talk{t: t}
		s.header(wire.ProtocolAMQP)
		out, err := s.hear(encode(t, 0, &wire.Open{ContainerID: "hub", MaxFrameSize: maxFrame, ChannelMax: 9,
			IdleTimeout: wire.Some(given)}, nil))
		require.NoError(t, err)
		f, _, err := wire.Split(out, maxFrame)
		require.NoError(t, err)
		p, _, err := f.Performative()
		require.NoError(t, err)
		require.Equal(t, wire.Some(want), p.(*wire.Open).IdleTimeout)
	}
}

// Before the connection is open, what the peer says in its place is nothing that another connection
// mends.
func TestTheHandshakeIsChecked(t *testing.T) {
	open := &wire.Open{ContainerID: "hub", MaxFrameSize: maxFrame, ChannelMax: 9}
	for name, c := range map[string]struct {
		id     byte
		say    []wire.Performative
		reason string
	}{
		"small frames": {wire.ProtocolAMQP, []wire.Performative{&wire.Open{ContainerID: "hub", MaxFrameSize: 60}},
			"max-frame-size: 60"},
		"no frames":         {wire.ProtocolAMQP, []wire.Performative{&wire.Open{ContainerID: "hub"}}, "max-frame-size: 0"},
		"begin before open": {wire.ProtocolAMQP, []wire.Performative{&wire.Begin{}}, "0x11, which cannot come here"},
		"sasl, not asked":   {wire.ProtocolAMQP, []wire.Performative{&wire.Outcome{}}, "type: 1, not 0"},
		"no sasl":           {wire.ProtocolSASL, []wire.Performative{open}, "type: 0, not 1"},
		"outcome too early": {wire.ProtocolSASL, []wire.Performative{&wire.Outcome{}}, "0x44, which cannot come here"},
		"mechanisms again": {wire.ProtocolSASL, []wire.Performative{&wire.Mechanisms{Mechanisms: []wire.Symbol{"PLAIN"}},
			&wire.Mechanisms{Mechanisms: []wire.Symbol{"PLAIN"}}},
			"0x40"},
		"a challenge": {wire.ProtocolSASL, []wire.Performative{&wire.Mechanisms{Mechanisms: []wire.Symbol{"PLAIN"}},
			&wire.Challenge{Challenge: []byte("x")}},
			"0x42"},
		"no mechanisms": {wire.ProtocolSASL, []wire.Performative{&wire.Mechanisms{}}, "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &talk{t: t}
			s.header(c.id)
			var err error
			for i, p := range c.say {
				_, err = s.hear(encode(t, 0, p, nil))
				if i < len(c.say)-1 {
					require.NoError(t, err)
				}
			}
			require.ErrorContains(t, err, c.reason)
			require.NotErrorIs(t, err, transport.ErrViolation)
		})
	}
}

// A hub may leave out how many transfers it has got, though it must not.
func TestAFlowWithoutACountGetsOurs(t *testing.T) {
	s := newTalk(t)
	b := unhex(t, "00 00 00 13 02 00 00 01 00 53 13 c0 06 04 40 52 08 43 43")
	f := s.rewritten(b).(*wire.Flow)
	require.Equal(t, &wire.Flow{NextIncomingID: wire.Some(uint32(0)), IncomingWindow: 8}, f)
	s.send(3)
	f = s.rewritten(b).(*wire.Flow)
	require.Equal(t, &wire.Flow{NextIncomingID: wire.Some(uint32(3)), IncomingWindow: 8}, f)
}

// What telemetry is answered, and sending it, costs nothing.
func TestTheScreenAllocatesNothing(t *testing.T) {
	s := newTalk(t)
	credit := encode(t, 1, &wire.Flow{NextIncomingID: wire.Some(uint32(1)), Handle: wire.Some(uint32(10)),
		DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(1 << 30))}, nil)
	transfer := encode(t, 1, &wire.Transfer{DeliveryID: wire.Some(uint32(1 << 20)), DeliveryTag: []byte{1},
		MessageFormat: wire.Some(uint32(0))}, make([]byte, 100))
	answer := encode(t, 1, &wire.Disposition{Role: wire.RoleReceiver, First: 1 << 20, Last: wire.Some(uint32(1 << 20)),
		Settled: true, State: &wire.Accepted{}}, nil)
	id, first := bytes.Index(transfer, []byte{0x70, 0, 0x10, 0, 0})+1, bytes.Index(answer, []byte{0x70, 0, 0x10, 0, 0})+1
	last := first + 5
	next := uint32(1 << 20)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		binary.BigEndian.PutUint32(transfer[id:], next)
		binary.BigEndian.PutUint32(answer[first:], next)
		binary.BigEndian.PutUint32(answer[last:], next)
		next++
		s.note(transfer)
		for _, b := range [][]byte{credit, answer} {
			if out, err := s.unit(b); err != nil || len(out) != len(b) {
				t.Fatal(err)
			}
		}
	}))
}

// What the screen costs for a message that is sent alone, and its answer.
func BenchmarkScreen(b *testing.B) {
	s := newTalk(b)
	transfer := encode(b, 1, &wire.Transfer{DeliveryID: wire.Some(uint32(1 << 20)), DeliveryTag: []byte{1},
		MessageFormat: wire.Some(uint32(0))}, make([]byte, 100))
	answer := encode(b, 1, &wire.Disposition{Role: wire.RoleReceiver, First: 1 << 20, Settled: true,
		State: &wire.Accepted{}}, nil)
	id, first := bytes.Index(transfer, []byte{0x70, 0, 0x10, 0, 0})+1, bytes.Index(answer, []byte{0x70, 0, 0x10, 0, 0})+1
	b.ReportAllocs()
	for i := range b.N {
		binary.BigEndian.PutUint32(transfer[id:], uint32(1<<20+i))
		binary.BigEndian.PutUint32(answer[first:], uint32(1<<20+i))
		s.note(transfer)
		if _, err := s.unit(answer); err != nil {
			b.Fatal(err)
		}
	}
}

// A delivery that is never settled does not make the numbers after it cost memory, however many of
// them are settled at once.
func TestAnOldUnsettledDeliveryCostsNoMemory(t *testing.T) {
	for _, next := range []uint32{maxSpan - 1, maxSpan, 2 * maxSpan, 1000 * maxSpan} {
		var d deliveries
		d.add(5)
		d.add(5 + next)
		require.LessOrEqual(t, len(d.bits), maxSpan/64+1, "next %d", next)
		low, high, n := d.take(0, 5+next)
		require.Equal(t, 5+next, high)
		require.LessOrEqual(t, int(high-low), maxSpan)
		require.GreaterOrEqual(t, n, 1)
	}
}

// This side decides when it settles what it receives. The library would wait for an answer of the
// peer to each disposition, and would keep the number of each aborted delivery for ever.
func TestAReceiverSettlesFirst(t *testing.T) {
	s := newTalk(t)
	s.saying(1, &wire.Attach{Name: "in 2", Handle: 2, Role: wire.RoleReceiver})
	s.saying(1, &wire.Attach{Name: "out 2", Handle: 3, Role: wire.RoleSender})
	got := s.rewritten(encode(t, 1, &wire.Attach{
		Name: "in 2", Handle: 12, Role: wire.RoleSender, SndSettleMode: 1, RcvSettleMode: 1,
		Source: &wire.Source{Address: "a"}, InitialDeliveryCount: wire.Some(uint32(7)),
	}, nil)).(*wire.Attach)
	want := &wire.Attach{Name: "in 2", Handle: 12, Role: wire.RoleSender, SndSettleMode: 1, Source: got.Source,
		InitialDeliveryCount: wire.Some(uint32(7))}
	require.Equal(t, want, got)
	// there the peer decides
	s.good(1, &wire.Attach{Name: "out 2", Handle: 13, Role: wire.RoleReceiver, RcvSettleMode: 1, Target: &wire.Target{}})
}

// accepts is an audience that takes each message and does not settle it.
type accepts struct {
	audience
	refs [][]byte
}

func (a *accepts) Deliver(d *transport.Delivery) bool {
	a.refs = append(a.refs, bytes.Clone(d.Ref))
	return true
}

// A peer that wants to settle second, and never does, holds nobody up: Do does not block.
func TestASettlementWaitsForNoAnswer(t *testing.T) {
	bounded.Test(t, func(t *testing.T) {
		p := newPuppet(func() uint32 { return 1 }, 0) // it answers attaches with rcv-settle-mode 1
		a := &accepts{audience: audience{results: make(chan uint16, 8), replies: make(chan transport.Reply, 8)}}
		made, err := New(&Options{
			Plaintext: true, Auth: Anonymous, Addresses: &Addresses{Telemetry: "out", Commands: "in"},
			Dial: func(context.Context, string, string) (net.Conn, error) { return p, nil },
		}).Dial(t.Context(), &transport.Config{Creds: &transport.Credentials{Host: "h", DeviceID: "d"}, Window: 4, Queue: 8,
			Sink: a})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error, 1)
		go func() { over <- made.Run(ctx) }()
		made.Do(&transport.Request{ID: 1, Op: transport.OpSubscribe, Want: transport.Messages})
		require.NoError(t, (<-a.replies).Err)
		synctest.Wait() // the peer has credit
		first := delivery(0, false)
		first.Handle = 0
		p.mu.Lock()
		p.out = append(p.out, encode(t, p.channel, first, []byte{0, 0x53, 0x75, 0xa0, 1, 'x'})...)
		p.more.Broadcast()
		p.mu.Unlock()
		synctest.Wait()
		require.Len(t, a.refs, 1)
		began := time.Now()
		end := time.AfterFunc(time.Minute, cancel)
		made.Do(&transport.Request{Op: transport.OpSettle, Ref: a.refs[0], Outcome: transport.Accept})
		end.Stop()
		require.Zero(t, time.Since(began))
		cancel()
		<-over
	})
}
