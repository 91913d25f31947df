package updates

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

func TestAWorkflowKeepsTheNewestReports(t *testing.T) {
	s := newService(t, Options{})
	defer s.Close()
	require.NoError(t, s.Publish(lever))
	_, err := s.Deploy(updatedata.Deployment{WorkflowID: "wf-1", Update: lever.ID, Incompatible: true})
	require.NoError(t, err)
	s.Offer("dev-1", nil)
	state := stateInProgress
	for i := range maxReports + 50 {
		a := &agentProperty{State: &state, Workflow: workflow{ID: "wf-1"}}
		a.Result.Details = strconv.Itoa(i)
		s.meet("dev-1", a)
	}
	all := s.Device("dev-1").Workflow("wf-1").Reports
	require.Len(t, all, maxReports)
	require.Equal(t, "149", all[maxReports-1].Result.Details)
}
