package backend

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// An import and a job change the hub until they end. Nothing of that is left after a reset.
func TestAResetLeavesNoEventsOfWhatItEnds(t *testing.T) {
	changes := func(h *State) {
		if err := h.hub.RemoveDevice("d"); err != nil {
			t.Error(err)
		}
	}
	for name, start := range map[string]func(h *State, ending <-chan struct{}) error{
		"import": func(h *State, ending <-chan struct{}) error {
			_, err := h.StartTransfer(TransferRequest{Run: func(context.Context, func(int, int)) error {
				<-ending
				changes(h)
				return nil
			}})
			return err
		},
		"job": func(h *State, ending <-chan struct{}) error {
			update := &hub.TwinUpdate{Tags: document.Tree{"a": true}}
			_, err := h.ScheduleJob(JobRequest{ID: "j", Update: update, Limit: time.Hour, Targets: func() []identity.Identity {
				<-ending
				changes(h)
				return nil
			}})
			return err
		},
	} {
		testkit.Run(t, name, func(t *testing.T) {
			h := newState(t, &hub.Options{Events: hubdata.EventOptions{Partitions: 1,
				Sources: []hubdata.EventSource{hubdata.EventSourceDeviceLifecycle}}})
			defer h.hub.Close()
			_, err := h.hub.AddDevice("d")
			require.NoError(t, err)
			ending := make(chan struct{})
			require.NoError(t, start(h, ending))
			synctest.Wait()
			through := make(chan struct{})
			go func() {
				defer close(through)
				h.hub.Reset()
			}()
			synctest.Wait()
			close(ending)
			<-through
			all, _, _ := h.hub.Telemetry.Read(nil, 0, 0, 1000)
			require.Empty(t, all)
		})
	}
}
