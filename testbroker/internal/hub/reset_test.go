package hub

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// An import and a job change the hub until they end. Nothing of that is left after a reset.
func TestAResetLeavesNoEventsOfWhatItEnds(t *testing.T) {
	changes := func(h *Hub) {
		if err := h.RemoveDevice("d"); err != nil {
			t.Error(err)
		}
	}
	for name, start := range map[string]func(h *Hub, ending <-chan struct{}) error{
		"import": func(h *Hub, ending <-chan struct{}) error {
			_, err := h.StartTransfer(TransferRequest{Run: func(context.Context, func(int, int)) error {
				<-ending
				changes(h)
				return nil
			}})
			return err
		},
		"job": func(h *Hub, ending <-chan struct{}) error {
			update := &TwinUpdate{Tags: Tree{"a": true}}
			_, err := h.ScheduleJob(JobRequest{ID: "j", Update: update, Limit: time.Hour, Targets: func() []Identity {
				<-ending
				changes(h)
				return nil
			}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, err := New(&Options{Events: hubdata.EventOptions{Partitions: 1,
					Sources: []hubdata.EventSource{hubdata.DeviceLifecycleEvents}}})
				require.NoError(t, err)
				defer h.Close()
				_, err = h.AddDevice("d")
				require.NoError(t, err)
				ending := make(chan struct{})
				require.NoError(t, start(h, ending))
				synctest.Wait()
				through := make(chan struct{})
				go func() {
					defer close(through)
					h.Reset()
				}()
				synctest.Wait()
				close(ending)
				<-through
				all, _, _ := h.ReadEvents(nil, 0, 0, 1000)
				require.Empty(t, all)
			})
		})
	}
}
