package backend

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"

	"github.com/stretchr/testify/require"
)

// A reset waits for the jobs that it ends. A job that a back end adds meanwhile belongs after it.
func TestAJobAddedDuringAResetStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newState(t, &hub.Options{})
		update := &hub.TwinUpdate{Tags: document.Tree{"a": true}}
		release := make(chan struct{})
		_, err := h.ScheduleJob(JobRequest{ID: "old", Update: update, Limit: time.Hour, Targets: func() []identity.Identity {
			<-release
			return nil
		}})
		require.NoError(t, err)
		synctest.Wait()
		go h.jobs.clear()
		synctest.Wait()
		_, err = h.ScheduleJob(JobRequest{ID: "new", Update: update, Limit: time.Hour, Start: time.Now().Add(time.Hour),
			Targets: func() []identity.Identity { return nil }})
		require.NoError(t, err)
		close(release)
		synctest.Wait()
		_, err = h.Job("old")
		require.Error(t, err)
		job, err := h.Job("new")
		require.NoError(t, err)
		require.Equal(t, JobScheduled, job.Status)
		require.NoError(t, h.hub.Close())
	})
}
