package amqp

import (
	"testing"

	"github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// poison is a message with an annotation whose key is a list.
var poison = []byte{0, 0x53, 0x72, 0xc1, 4, 2, 0xc0, 1, 0, 0x40, 0, 0x53, 0x75, 0xa0, 1, 'x'}

// The library has the fault that screen is for. When this fails, screen can go.
func TestTheLibraryPanics(t *testing.T) {
	require.Panics(t, func() { _ = new(amqp.Message).UnmarshalBinary(poison) })
}

func TestPoisonIsFound(t *testing.T) {
	good, err := wire.AppendMessage(nil, &wire.Message{MessageAnnotations: wire.Map{{Key: wire.Symbol("k"), Value: wire.List{nil}}}, Data: [][]byte{[]byte("hello")}})
	require.NoError(t, err)
	id := wire.Some(uint32(7))
	type frame struct {
		channel uint16
		body    wire.Performative
		payload []byte
	}
	first := func(payload []byte) frame {
		return frame{1, &wire.Transfer{Handle: 3, DeliveryID: id, More: true}, payload}
	}
	rest := func(payload []byte) frame { return frame{1, &wire.Transfer{Handle: 3}, payload} }
	for name, c := range map[string]struct {
		say []frame
		bad bool // the last one
	}{
		"good":            {[]frame{{1, &wire.Transfer{Handle: 3, DeliveryID: id}, good}}, false},
		"poison":          {[]frame{{1, &wire.Transfer{Handle: 3, DeliveryID: id}, poison}}, true},
		"poison in parts": {[]frame{first(poison[:5]), first(poison[5:8]), rest(poison[8:])}, true},
		"good in parts":   {[]frame{first(good[:5]), rest(good[5:])}, false},
		"of two links":    {[]frame{first(good[:5]), {1, &wire.Transfer{Handle: 4, DeliveryID: wire.Some(uint32(8))}, good}, {1, &wire.Detach{Handle: 4}, nil}, rest(good[5:])}, false},
		"aborted":         {[]frame{first(poison), {1, &wire.Transfer{Handle: 3, Aborted: true}, nil}, {1, &wire.Transfer{Handle: 3, DeliveryID: id}, good}}, false},
		"given up":        {[]frame{first(good[:5]), {1, &wire.Transfer{Handle: 3, DeliveryID: wire.Some(uint32(8))}, good}}, false},
		"detached":        {[]frame{first(good[:5]), {1, &wire.Detach{Handle: 3}, nil}, {1, &wire.Transfer{Handle: 3, DeliveryID: id}, good}}, false},
		"attached again":  {[]frame{first(good[:5]), {1, &wire.Attach{Name: "n", Handle: 3}, nil}, {1, &wire.Transfer{Handle: 3, DeliveryID: id}, good}}, false},
		"session ended":   {[]frame{first(good[:5]), {1, &wire.End{}, nil}, {1, &wire.Begin{}, nil}, {1, &wire.Transfer{Handle: 3, DeliveryID: id}, good}}, false},
		"cut short":       {[]frame{{1, &wire.Transfer{Handle: 3, DeliveryID: id}, good[:len(good)-1]}}, true},
		"no section":      {[]frame{{1, &wire.Transfer{Handle: 3, DeliveryID: id}, []byte{0x40}}}, true},
		"not looked at":   {[]frame{{1, &wire.Flow{}, nil}, {1, &wire.Disposition{}, nil}, {0, nil, nil}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var f frameSizes
			for i, x := range c.say {
				b, err := wire.AppendFrame(nil, x.channel, x.body, x.payload)
				require.NoError(t, err)
				for j := range b {
					err = f.scan(b[j : j+1])
					if !c.bad || i < len(c.say)-1 || j < len(b)-1 {
						require.NoError(t, err)
					}
				}
				if c.bad && i == len(c.say)-1 {
					require.ErrorIs(t, err, errUnsound)
				}
			}
			if !c.bad {
				require.Empty(t, f.screen.parts)
			}
		})
	}
	var f frameSizes
	answer, err := wire.AppendFrame(nil, 1, &wire.Disposition{Role: true, Settled: true, State: &wire.Accepted{}}, nil)
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = f.scan(answer) }), "what telemetry is answered costs nothing")
}

// What follows each other on the wire may be anything.
func TestAnOddDeliveryIsFound(t *testing.T) {
	for name, id := range map[string]any{"list": wire.List{}, "map": wire.Map{}, "binary": []byte("x"), "text": "x"} {
		t.Run(name, func(t *testing.T) {
			body, err := wire.Append(nil, &wire.Described{Descriptor: uint64(codeTransfer), Value: wire.List{uint32(3), id, []byte("t"), uint32(0), false, true}})
			require.NoError(t, err)
			var s screen
			b := append([]byte{0, 0, 0, byte(8 + len(body)), 2, 0, 0, 1}, body...)
			err = s.frame(b)
			if err == nil {
				err = s.frame(b)
			}
			require.ErrorIs(t, err, errUnsound)
		})
	}
}

// A message without an end does not fill the memory.
func TestAnEndlessMessageIsCutOff(t *testing.T) {
	var f frameSizes
	id := wire.Some(uint32(7))
	part := make([]byte, maxFrame-100)
	b, err := wire.AppendFrame(nil, 1, &wire.Transfer{Handle: 3, DeliveryID: id, More: true}, part)
	require.NoError(t, err)
	for sent := 0; ; sent += len(part) {
		if err = f.scan(b); err != nil {
			require.ErrorIs(t, err, errTooLong)
			require.InDelta(t, maxMessage, sent, maxFrame)
			return
		}
		require.LessOrEqual(t, sent, maxMessage)
	}
}
