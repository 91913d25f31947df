package amqpclient

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

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
		t.Run(name, func(t *testing.T) { rigged(t, func(r *rig) { r.refuses(c.frame, c.reason) }) })
	}
	rigged(t, func(r *rig) {
		r.refuses(encode(t, 2, &wire.End{}, nil), "end is on channel 2, which has no session")
	})
}

// The type and the data offset of a frame hide nothing.
func TestFrameTypeAndDataOffsetAreChecked(t *testing.T) {
	good := encode(t, 1, delivery(7, false), []byte{0, 0x53, 0x75, 0xa0, 1, 'x'})
	typed := bytes.Clone(good)
	typed[5] = 1
	rigged(t, func(r *rig) { r.refuses(typed, "frame has the type 1, not 0") })
	for _, offset := range []byte{0, 1, 200} {
		odd := bytes.Clone(good)
		odd[4] = offset
		rigged(t, func(r *rig) { r.refuses(odd, "data offset") })
	}
	extended := append(append(bytes.Clone(good[:8]), 0, 0x53, 0x17, 0x45), good[8:]...)
	extended[4] = 3
	wire.EndFrame(extended)
	rigged(t, func(r *rig) {
		r.write(extended)
		synctest.Wait()
		require.Len(t, r.got, 1, "an extended header is legal: it is left out")
		require.Equal(t, "x", string(r.got[0].Body()))
		r.write([]byte{0, 0, 0, 8, 2, 0, 0, 0})
		synctest.Wait()
		require.False(t, r.c.Gone())
	})
}
