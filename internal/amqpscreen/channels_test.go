package amqpscreen

import (
	"testing"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// A begin waits for the end on its channel; other frames do not wait. An end without a begin is
// dropped.
func TestABeginWaitsForTheEndBeforeIt(t *testing.T) {
	frame := func(channel uint16, p wire.Performative) []byte {
		b, err := wire.AppendFrame(nil, channel, p, nil)
		require.NoError(t, err)
		return b
	}
	begin, end := frame(7, &wire.Begin{}), frame(7, &wire.End{})
	other, alive := frame(8, &wire.Begin{}), frame(0, nil)
	header := wire.ProtocolHeader(wire.ProtocolAMQP)
	var c channels
	var out []byte
	for _, step := range []struct {
		say, want []byte
	}{
		{header[:], header[:]}, {alive, alive}, {end, nil},
		{begin, begin}, {begin, nil}, {other, other}, {end, append(append([]byte{}, end...), begin...)},
		{end, end}, {end, nil}, {begin, begin}, {end, end}, {begin, begin},
	} {
		before := len(out)
		out = c.pass(out, step.say)
		require.Equal(t, string(step.want), string(out[before:]))
	}
	require.Empty(t, c.held)
	require.Zero(t, testing.AllocsPerRun(100, func() { out = c.pass(out[:0], alive) }))
}
