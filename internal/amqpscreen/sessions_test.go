package amqpscreen

import (
	"testing"

	"github.com/stretchr/testify/require"

	wire "github.com/hubline-iot/hubline/internal/amqpwire"
)

// An end ends its own session only, not one that this side has begun on the channel meanwhile.
func TestAnEndThatCrossesABeginEndsTheFormerSession(t *testing.T) {
	s := newTestScreen(t)
	s.sends(1, &wire.End{})
	s.sends(1, &wire.Begin{IncomingWindow: 5000, OutgoingWindow: 5000})
	s.passes(1, &wire.End{})
	s.passes(1, &wire.Begin{RemoteChannel: wire.Some(uint16(1)), IncomingWindow: 5000, OutgoingWindow: 5000})
	s.sends(1, &wire.Attach{Name: "out", Handle: 0, Role: wire.RoleSender, Source: &wire.Source{},
		Target: &wire.Target{}})
	s.passes(1, &wire.Attach{Name: "out", Handle: 10, Role: wire.RoleReceiver, Source: &wire.Source{},
		Target: &wire.Target{}})
}

func TestAnEndedSessionIsForgotten(t *testing.T) {
	s := newTestScreen(t)
	s.sends(1, &wire.End{})
	s.passes(1, &wire.End{})
	require.Empty(t, s.local)
	require.Empty(t, s.remote)
	s.refuses(encode(t, 1, &wire.Begin{RemoteChannel: wire.Some(uint16(1))}, nil), "no session is being begun")
}
