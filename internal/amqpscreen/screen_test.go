package amqpscreen

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
	"github.com/hubline-iot/hubline/transport"
)

// testScreen is a screen between a library and a peer that have opened the connection and begun a
// session on channel 1. This side sends on one link (handles 0 and 10), and receives on another
// (handles 1 and 11), for five messages.
type testScreen struct {
	screen
	t testing.TB
}

func newTestScreen(t testing.TB) *testScreen {
	s := &testScreen{t: t}
	s.sent([]byte("AMQP\x00\x01\x00\x00"))
	s.header(wire.ProtocolAMQP)
	s.passes(0, &wire.Open{ContainerID: "hub", MaxFrameSize: MaxFrame, ChannelMax: 9})
	s.sends(1, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000})
	s.passes(1, &wire.Begin{RemoteChannel: wire.Some(uint16(1)), IncomingWindow: 5000, OutgoingWindow: 5000})
	s.sends(1, &wire.Attach{Name: "out", Handle: 0, Role: wire.RoleSender, Source: &wire.Source{},
		Target: &wire.Target{}})
	s.passes(1, &wire.Attach{Name: "out", Handle: 10, Role: wire.RoleReceiver, Source: &wire.Source{},
		Target: &wire.Target{}})
	s.sends(1, &wire.Attach{Name: "in", Handle: 1, Role: wire.RoleReceiver, Source: &wire.Source{},
		Target: &wire.Target{}})
	s.passes(1, &wire.Attach{Name: "in", Handle: 11, Role: wire.RoleSender, Source: &wire.Source{},
		Target: &wire.Target{}})
	s.sends(1, &wire.Flow{IncomingWindow: 5000, OutgoingWindow: 5000, Handle: wire.Some(uint32(1)),
		DeliveryCount: wire.Some(uint32(0)), LinkCredit: wire.Some(uint32(5))})
	return s
}

func encode(t testing.TB, channel uint16, p wire.Performative, payload []byte) []byte {
	b, err := wire.AppendFrame(nil, channel, p, payload)
	require.NoError(t, err)
	return b
}

// sent records bytes of this side.
func (s *testScreen) sent(b []byte) { s.recordSent(b) }

func (s *testScreen) sends(channel uint16, p wire.Performative) { s.sent(encode(s.t, channel, p, nil)) }

// send records n messages of this side.
func (s *testScreen) send(n int) {
	first := s.local[1].out.next
	for i := range n {
		s.sent(encode(s.t, 1, &wire.Transfer{DeliveryID: wire.Some(first + uint32(i)), DeliveryTag: []byte{1},
			MessageFormat: wire.Some(uint32(0))}, []byte("x")))
	}
}

// receive passes bytes of the peer to the screen.
func (s *testScreen) receive(b []byte) ([]byte, error) {
	out, err := s.check(bytes.Clone(b))
	for rest := out; err == nil && len(rest) > 0; {
		f, n, bad := wire.Split(rest, MaxFrame)
		require.NoError(s.t, bad)
		require.NotZero(s.t, n)
		_, _, bad = f.Performative()
		require.NoError(s.t, bad)
		rest = rest[n:]
	}
	return out, err
}

// passes requires that a frame passes unchanged.
func (s *testScreen) passes(channel uint16, p wire.Performative, payload ...byte) {
	s.t.Helper()
	b := encode(s.t, channel, p, payload)
	out, err := s.receive(b)
	require.NoError(s.t, err)
	require.Equal(s.t, b, out)
}

// refuses requires that a frame ends the connection with a reason.
func (s *testScreen) refuses(b []byte, reason string) {
	s.t.Helper()
	_, err := s.receive(b)
	bad, ok := errors.AsType[*Violation](err)
	require.True(s.t, ok, "%v", err)
	require.ErrorContains(s.t, bad, reason)
	require.ErrorIs(s.t, bad, transport.ErrViolation)
}

// rewritten returns the frame that replaces b.
func (s *testScreen) rewritten(b []byte) wire.Performative {
	s.t.Helper()
	out, err := s.receive(b)
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

// delivery returns the first transfer of a message.
func delivery(id uint32, more bool) *wire.Transfer {
	return &wire.Transfer{Handle: 11, DeliveryID: wire.Some(id), DeliveryTag: []byte{1},
		MessageFormat: wire.Some(uint32(0)), More: more}
}

// raw returns a frame on channel 1 with the given fields.
func raw(t testing.TB, code uint64, fields ...any) []byte {
	body, err := wire.Append(nil, &wire.Described{Descriptor: code, Value: wire.List(fields)})
	require.NoError(t, err)
	return framed(body)
}

func framed(body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	return append(append(b, 2, 0, 0, 1), body...)
}

// Frames are refused for a fault at any depth.
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
			"disposition.state: map with a key that is no simple value"},
		"key in flow":       {raw(t, codeFlow, props(badKey)...), "flow.properties: map with a key"},
		"key in flow, deep": {raw(t, codeFlow, props(deepKey)...), "flow.properties: map with a key"},
		"key in close": {raw(t, codeClose, composite(0x1d, wire.Symbol("x"), nil, deepKey)),
			"close.error: map with a key"},
		"key in end": {raw(t, codeEnd, composite(0x1d, wire.Symbol("x"), nil, deepKey)),
			"end.error: map with a key"},
		"key in detach": {raw(t, codeDetach, uint32(11), true, composite(0x1d, wire.Symbol("x"), nil, deepKey)),
			"detach.error: map with a key"},
		"key in transfer": {raw(t, codeTransfer, uint32(11), n, []byte("t"), n, true, false, nil, composite(0x27, nil, nil,
			badKey)),
			"transfer.state: map with a key"},
		"key in begin": {raw(t, codeBegin, uint16(1), n, n, n, nil, nil, nil, deepKey),
			"begin.properties: map with a key"},
		"key in attach": {raw(t, codeAttach, "in", uint32(11), false, nil, nil, composite(0x28, nil, nil, nil, nil, nil, nil,
			nil, badKey)),
			"attach.source: map with a key"},
		"a number for a key": {raw(t, codeFlow, props(wire.Map{{Key: int32(1), Value: nil}})...),
			"flow.properties has a key of a wrong type"},
		"two nulls":       {framed([]byte{0x40, 0x40}), "not a composite"},
		"a name":          {framed(append([]byte("\x00\xa3\x0famqp:close:list"), 0x45)), "not a composite"},
		"not a list":      {framed([]byte{0, 0x53, codeClose, 0xa0, 0}), "not a list"},
		"open again":      {raw(t, codeOpen, "x"), "0x10, which must not come here"},
		"sasl":            {raw(t, codeOutcome, uint8(0)), "0x44, which must not come here"},
		"too many fields": {raw(t, codeEnd, nil, nil), "end has 2 fields, it can have 1"},
		"list cut short":  {framed([]byte{0, 0x53, codeEnd, 0xc0, 9, 1, 0x40}), "cut short"},
		"bytes behind":    {framed([]byte{0, 0x53, codeEnd, 0x45, 0x40}), "end has 1 bytes behind it"},
		"bytes in the list": {framed([]byte{0, 0x53, codeEnd, 0xc0, 3, 1, 0x40, 0x40}),
			"end has 1 bytes behind its last field"},
		"an unknown state": {raw(t, codeDisposition, true, n, n, true, composite(0x34, []byte("t"))),
			"disposition.state is composite 0x34, which cannot be there"},
		"a decimal": {raw(t, codeFlow, props(wire.Map{{Key: "x", Value: wire.Decimal32{}}})...),
			"unsupported AMQP from the peer: flow.properties holds"},
		"an array of empty values": {framed(unhex(t,
			"00 53 13 c0 15 0b 43434343 404040404040 c1 08 02 a1 01 78 e0 02 02 43")),
			"unsupported AMQP from the peer: flow.properties holds"},
		"an array of lists": {raw(t, codeFlow, props(wire.Map{{Key: "x", Value: wire.Array{wire.List{n}}}})...),
			"unsupported AMQP from the peer: flow.properties holds"},
		"attach of nothing": {raw(t, codeAttach, "x", n, false),
			"unsupported AMQP from the peer: attach.name is not that of a link"},
		"handle twice": {raw(t, codeAttach, "in", uint32(11), false), "attach.handle is 11, which is in use"},
		"attach again": {raw(t, codeAttach, "in", uint32(12), false),
			"unsupported AMQP from the peer: attach.name is not that of a link"},
		"attach in the role here": {raw(t, codeAttach, "in", uint32(12), true),
			"unsupported AMQP from the peer: attach.name is not that of a link"},
		"a settle mode": {raw(t, codeAttach, "in", n, false, uint8(3)), "attach.snd-settle-mode is 3, more than 2"},
		"a policy": {raw(t, codeAttach, "in", n, false, nil, nil, composite(0x28, nil, nil, wire.Symbol("x"))),
			"attach.source.expiry-policy is not one of"},
		"unsettled deliveries": {raw(t, codeAttach, "in", n, false, nil, nil, nil, nil, wire.Map{{Key: "x", Value: "y"}}),
			"attach.unsettled has an item of a wrong type"},
		"begin of nothing": {raw(t, codeBegin, uint16(5), n, n, n), "begin.remote-channel is 5, on which"},
		"begin not answered": {raw(t, codeBegin, nil, n, n, n),
			"unsupported AMQP from the peer: begin.remote-channel is missing"},
		"begin again":       {raw(t, codeBegin, uint16(1), n, n, n), "begin.remote-channel is 1, on which"},
		"detach of nothing": {raw(t, codeDetach, uint32(5)), "detach.handle is 5, to which no link is attached"},
		"flow of nothing": {raw(t, codeFlow, n, n, n, n, uint32(5)),
			"flow.handle is 5, to which no link is attached"},
		"flow without window": {raw(t, codeFlow, n, nil, n, n), "flow.incoming-window is missing"},
		"disposition backwards": {raw(t, codeDisposition, true, uint32(5), n),
			"disposition.last is 0, which comes before first, 5"},
		"an error without reason": {raw(t, codeEnd, composite(0x1d)), "end.error.condition is missing"},
		"a truth of two": {framed([]byte{0, 0x53, codeDisposition, 0xc0, 4, 2, 0x56, 2, 0x43}),
			"disposition.role: boolean 0x02"},
	} {
		t.Run(name, func(t *testing.T) { newTestScreen(t).refuses(c.frame, c.reason) })
	}
	newTestScreen(t).refuses(encode(t, 2, &wire.End{}, nil), "end is on channel 2, which has no session")
	begun := newTestScreen(t)
	begun.sends(5, &wire.Begin{})
	begun.refuses(encode(t, 1, &wire.Begin{RemoteChannel: wire.Some(uint16(5))}, nil),
		"begin is on channel 1, which has a session")
}

// The library ignores both: it takes a frame of type 1, or the bytes of an extended header, for a
// performative.
func TestFrameTypeAndDataOffsetAreChecked(t *testing.T) {
	b := encode(t, 1, delivery(7, false), poison)
	typed := bytes.Clone(b)
	typed[5] = 1
	newTestScreen(t).refuses(typed, "frame has the type 1, not 0")
	extended := func(b []byte) []byte {
		b = append(append(bytes.Clone(b[:8]), 0, 0x53, 0x17, 0x45), b[8:]...)
		b[4] = 3
		binary.BigEndian.PutUint32(b, uint32(len(b)))
		return b
	}
	replaced, err := newTestScreen(t).receive(extended(b))
	require.NoError(t, err)
	require.NotContains(t, string(replaced), string(poison))
	for _, offset := range []byte{0, 1, 200} {
		odd := bytes.Clone(b)
		odd[4] = offset
		newTestScreen(t).refuses(odd, "data offset")
	}
	good := encode(t, 1, delivery(7, false), []byte{0, 0x53, 0x75, 0xa0, 1, 'x'})
	out, err := newTestScreen(t).receive(extended(good))
	require.NoError(t, err)
	f, _, err := wire.Split(out, MaxFrame)
	require.NoError(t, err)
	require.EqualValues(t, 2, out[4], "an extended header is legal: it is left out")
	p, payload, err := f.Performative()
	require.NoError(t, err)
	require.Equal(t, wire.Performative(delivery(7, false)), p)
	require.Equal(t, []byte{0, 0x53, 0x75, 0xa0, 1, 'x'}, payload)
	out, err = newTestScreen(t).receive([]byte{0, 0, 0, 8, 2, 0, 0, 0})
	require.NoError(t, err)
	require.Empty(t, out, "the library would keep it")
}

// After a refused attach only a detach is allowed.
func TestARefusedLinkIsDetached(t *testing.T) {
	for name, p := range map[string]wire.Performative{
		"flow":     &wire.Flow{Handle: wire.Some(uint32(12))},
		"transfer": func() wire.Performative { d := delivery(0, false); d.Handle = 12; return d }(),
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestScreen(t)
			s.sends(1, &wire.Attach{Name: "no", Handle: 2, Role: wire.RoleReceiver})
			s.passes(1, &wire.Attach{Name: "no", Handle: 12, Role: wire.RoleSender})
			s.refuses(encode(t, 1, p, nil), "handle is 12, that of a link")
		})
	}
	s := newTestScreen(t)
	s.sends(1, &wire.Attach{Name: "no", Handle: 2, Role: wire.RoleReceiver})
	s.passes(1, &wire.Attach{Name: "no", Handle: 12, Role: wire.RoleSender})
	s.passes(1, &wire.Detach{Handle: 12, Closed: true, Error: wire.Errorf(wire.NotFound, "x")})
	s.refuses(encode(t, 1, &wire.Detach{Handle: 12, Closed: true}, nil),
		"detach.handle is 12, to which no link is attached")
}

// The library does not handle a detach that does not close.
func TestEachDetachIsMadeAClosingOne(t *testing.T) {
	detach := &wire.Detach{Handle: 11, Error: wire.Errorf(wire.DetachForced, "x")}
	d := newTestScreen(t).rewritten(encode(t, 1, detach, nil)).(*wire.Detach)
	require.Equal(t, &wire.Detach{Handle: 11, Closed: true, Error: wire.Errorf(wire.DetachForced, "x")}, d)
}

// With a short idle time-out the library would write keep-alives all the time.
func TestAShortIdleTimeoutIsMadeLonger(t *testing.T) {
	for given, want := range map[uint32]uint32{1: 1000, 999: 1000, 1000: 1000, 60_000: 60_000} {
		s := &testScreen{t: t}
		s.header(wire.ProtocolAMQP)
		out, err := s.receive(encode(t, 0, &wire.Open{ContainerID: "hub", MaxFrameSize: MaxFrame, ChannelMax: 9,
			IdleTimeout: wire.Some(given)}, nil))
		require.NoError(t, err)
		f, _, err := wire.Split(out, MaxFrame)
		require.NoError(t, err)
		p, _, err := f.Performative()
		require.NoError(t, err)
		require.Equal(t, wire.Some(want), p.(*wire.Open).IdleTimeout)
	}
}

// The receiver settles first. Otherwise the library would wait for an answer to each disposition,
// and keep the number of each aborted delivery for ever.
func TestReceiversSettleFirst(t *testing.T) {
	s := newTestScreen(t)
	s.sends(1, &wire.Attach{Name: "in 2", Handle: 2, Role: wire.RoleReceiver})
	s.sends(1, &wire.Attach{Name: "out 2", Handle: 3, Role: wire.RoleSender})
	got := s.rewritten(encode(t, 1, &wire.Attach{
		Name: "in 2", Handle: 12, Role: wire.RoleSender, SndSettleMode: 1, RcvSettleMode: 1,
		Source: &wire.Source{Address: "a"}, InitialDeliveryCount: wire.Some(uint32(7)),
	}, nil)).(*wire.Attach)
	want := &wire.Attach{Name: "in 2", Handle: 12, Role: wire.RoleSender, SndSettleMode: 1, Source: got.Source,
		InitialDeliveryCount: wire.Some(uint32(7))}
	require.Equal(t, want, got)
	// on a sending link the peer decides
	s.passes(1, &wire.Attach{Name: "out 2", Handle: 13, Role: wire.RoleReceiver, RcvSettleMode: 1, Target: &wire.Target{}})
}

// Violations before the open are not retried: the next connection would fail in the same way.
func TestTheHandshakeIsChecked(t *testing.T) {
	open := &wire.Open{ContainerID: "hub", MaxFrameSize: MaxFrame, ChannelMax: 9}
	for name, c := range map[string]struct {
		id     byte
		frames []wire.Performative
		reason string
	}{
		"small frames": {wire.ProtocolAMQP, []wire.Performative{&wire.Open{ContainerID: "hub", MaxFrameSize: 60}},
			"open.max-frame-size is 60, less than 512"},
		"no frames": {wire.ProtocolAMQP, []wire.Performative{&wire.Open{ContainerID: "hub"}},
			"open.max-frame-size is 0, less than 512"},
		"begin before open": {wire.ProtocolAMQP, []wire.Performative{&wire.Begin{}}, "0x11, which must not come here"},
		"sasl, not asked":   {wire.ProtocolAMQP, []wire.Performative{&wire.Outcome{}}, "frame has the type 1, not 0"},
		"no sasl":           {wire.ProtocolSASL, []wire.Performative{open}, "frame has the type 0, not 1"},
		"outcome too early": {wire.ProtocolSASL, []wire.Performative{&wire.Outcome{}}, "0x44, which must not come here"},
		"mechanisms again": {wire.ProtocolSASL, []wire.Performative{&wire.Mechanisms{Mechanisms: []wire.Symbol{"PLAIN"}},
			&wire.Mechanisms{Mechanisms: []wire.Symbol{"PLAIN"}}},
			"0x40"},
		"a challenge": {wire.ProtocolSASL, []wire.Performative{&wire.Mechanisms{Mechanisms: []wire.Symbol{"PLAIN"}},
			&wire.Challenge{Challenge: []byte("x")}},
			"0x42"},
		"no mechanisms": {wire.ProtocolSASL, []wire.Performative{&wire.Mechanisms{}}, "is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &testScreen{t: t}
			s.header(c.id)
			var err error
			for i, p := range c.frames {
				_, err = s.receive(encode(t, 0, p, nil))
				if i < len(c.frames)-1 {
					require.NoError(t, err)
				}
			}
			require.ErrorContains(t, err, c.reason)
			require.NotErrorIs(t, err, transport.ErrViolation)
		})
	}
}

// Transfers of telemetry and their dispositions do not allocate.
func TestTheScreenAllocatesNothing(t *testing.T) {
	s := newTestScreen(t)
	credit := encode(t, 1, &wire.Flow{NextIncomingID: wire.Some(uint32(1)), IncomingWindow: 1 << 30,
		Handle:        wire.Some(uint32(10)),
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
		s.recordSent(transfer)
		for _, b := range [][]byte{credit, answer} {
			if out, err := s.check(b); err != nil || len(out) != len(b) {
				t.Fatal(err)
			}
		}
	}))
}

// BenchmarkScreen measures the screen with a transfer of one message and its disposition.
func BenchmarkScreen(b *testing.B) {
	s := newTestScreen(b)
	transfer := encode(b, 1, &wire.Transfer{DeliveryID: wire.Some(uint32(1 << 20)), DeliveryTag: []byte{1},
		MessageFormat: wire.Some(uint32(0))}, make([]byte, 100))
	answer := encode(b, 1, &wire.Disposition{Role: wire.RoleReceiver, First: 1 << 20, Settled: true,
		State: &wire.Accepted{}}, nil)
	id, first := bytes.Index(transfer, []byte{0x70, 0, 0x10, 0, 0})+1, bytes.Index(answer, []byte{0x70, 0, 0x10, 0, 0})+1
	b.ReportAllocs()
	for i := range b.N {
		binary.BigEndian.PutUint32(transfer[id:], uint32(1<<20+i))
		binary.BigEndian.PutUint32(answer[first:], uint32(1<<20+i))
		s.recordSent(transfer)
		if _, err := s.check(answer); err != nil {
			b.Fatal(err)
		}
	}
}
