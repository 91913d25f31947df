package dpstransport_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning/dpstransport"
	"github.com/hubline-iot/hubline/transport"
)

// Defects of the official clients: none of them goes back to the service by itself, has a second
// key, or says what it waits for.

func TestDefectADeviceThatItsHubRefusesStaysThere(t *testing.T) {
	for _, kind := range []transport.Kind{transport.Unauthorized, transport.Forbidden, transport.NotFound} {
		inBubble(t, func(t *testing.T) {
			s, h := &service{}, &hubs{}
			tr := setup(t, s, h, 1, nil)
			require.NoError(t, dial(t, tr))
			h.errs = []error{refuse(kind)}
			require.Error(t, dial(t, tr))
			require.NoError(t, dial(t, tr))
			require.Equal(t, "hub2.example.test", h.dialed[len(h.dialed)-1], kind)
		})
	}
}

func TestDefectTheSecondKeyIsNotUsedAtTheHub(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, h := &service{}, &hubs{}
		tr := setup(t, s, h, 2, nil)
		h.errs = []error{refuse(transport.Unauthorized)}
		require.Error(t, dial(t, tr))
		require.NoError(t, dial(t, tr))
		require.Equal(t, []bool{true, false}, h.keys)
		require.Equal(t, 1, s.asked)
	})
}

func TestDefectAMoveIsNotReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s, h := &service{}, &hubs{}
		var events []dpstransport.Event
		tr := setup(t, s, h, 1, &dpstransport.Options{OnEvent: func(e dpstransport.Event) { events = append(events, e) }})
		require.NoError(t, dial(t, tr))
		h.errs = []error{refuse(transport.NotFound)}
		require.Error(t, dial(t, tr))
		require.NoError(t, dial(t, tr))
		require.Len(t, events, 4)
		require.Equal(t, dpstransport.StepRegistering, events[2].Step)
		require.Equal(t, "hub1.example.test", events[2].Hub)
		require.ErrorIs(t, events[2].Err, transport.NotFound, "the reason")
		require.Equal(t, dpstransport.Event{Step: dpstransport.StepAssigned, Hub: "hub2.example.test", DeviceID: "dev-1",
			Moved: true}, events[3])
	})
}
