package goamqp

import (
	"testing"

	raw "github.com/Azure/go-amqp"
	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/transport"
)

// Only accepted is a success. A message that is settled without a final outcome may have been lost.
func TestKindsOfOutcomes(t *testing.T) {
	for _, state := range []raw.DeliveryState{nil, &raw.StateReceived{}} {
		e, _ := verdict(state)
		require.ErrorIs(t, e, transport.Unavailable)
		require.ErrorIs(t, e, transport.ErrOutcomeUnknown)
	}
	e, _ := verdict(&raw.StateReleased{})
	require.ErrorIs(t, e, transport.Unavailable)
	require.NotErrorIs(t, e, transport.ErrOutcomeUnknown)
	e, _ = verdict(&raw.StateAccepted{})
	require.Nil(t, e)
}
