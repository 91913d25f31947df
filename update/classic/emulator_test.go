package classic_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
	"github.com/hubline-iot/hubline/update/adusign"
	"github.com/hubline-iot/hubline/update/agent"
)

// updateRig is a rig whose hub has an update service, with versions 1.1 and 1.2 for tractors.
type updateRig struct {
	*rig
	updates *testbroker.Updates
}

func updateID(version string) updatedata.UpdateID {
	return updatedata.UpdateID{Provider: "Contoso", Name: "Tractor", Version: version}
}

func withUpdates(t *testing.T, f func(r *updateRig)) {
	t.Helper()
	testkit.In2030(t, func(t *testing.T) {
		updates, err := testbroker.NewUpdates(nil)
		require.NoError(t, err)
		r := &updateRig{newRig(t), updates}
		for _, version := range []string{"1.1", "1.2"} {
			require.NoError(t, updates.Publish(updatedata.Update{
				ID:            updateID(version),
				Compatibility: []map[string]string{{"manufacturer": "Contoso", "model": "Tractor"}},
				Steps:         []updatedata.Step{{Handler: "contoso/image:1", Files: []string{"image"}}},
				Files:         []updatedata.File{{Name: "image", Content: []byte("image " + version)}},
			}))
		}
		r.LinkUpdates(updates)
		r.start(overMQTT(r.Hub))
		r.woken()
		r.check() // the service knows the device from here on
		f(r)
	})
}

// publishLarge publishes a version whose manifest is too large for a twin.
func (r *updateRig) publishLarge(version string) {
	r.t.Helper()
	require.NoError(r.t, r.updates.Publish(updatedata.Update{
		ID: updateID(version), Compatibility: []map[string]string{{"manufacturer": "Contoso"}},
		Steps: []updatedata.Step{{Handler: "contoso/image:1", Files: []string{"image"},
			Properties: json.RawMessage(`{"text":"` + strings.Repeat("x", 5000) + `"}`)}},
		Files: []updatedata.File{{Name: "image", Content: []byte("image " + version)}},
	}))
}

func (r *updateRig) deployVersion(version string) string {
	r.t.Helper()
	d, err := r.updates.Deploy(updatedata.Deployment{Update: updateID(version)})
	require.NoError(r.t, err)
	return d.WorkflowID
}

// next waits for the next order of the service.
func (r *updateRig) next() *agent.Answer {
	r.t.Helper()
	r.woken()
	return r.check()
}

// ends reports an outcome, with the version that is installed then.
func (r *updateRig) ends(workflow string, outcome agent.Outcome, installed string) {
	r.t.Helper()
	report := agent.Report{WorkflowID: workflow, Result: agent.Result{Outcome: outcome}}
	if outcome == agent.OutcomeSucceeded {
		report.Steps = []agent.Result{{Outcome: outcome}}
	}
	report.Installed = agent.UpdateID{Provider: "Contoso", Name: "Tractor", Version: installed}
	r.report(report)
}

// outcome waits until the service has an outcome of a workflow.
func (r *updateRig) outcome(workflow string, want updatedata.Outcome) {
	r.t.Helper()
	require.NoError(r.t, r.updates.Wait(context.Background(), func() bool {
		d := r.updates.Device(deviceID)
		w := d.Workflow(workflow)
		return w.Outcome() == want
	}))
}

func TestADeploymentByTheTwinEndsInSuccess(t *testing.T) {
	withUpdates(t, func(r *updateRig) {
		workflow := r.deployVersion("1.1")
		o := r.next().Offer
		require.Equal(t, workflow, o.WorkflowID)
		require.NoError(t, adusign.Roots(r.updates.Roots()).Verify(o.Manifest, o.Signature))
		m, err := agent.ParseManifest(o.Manifest)
		require.NoError(t, err)
		require.Contains(t, o.URLs[m.Files[0].ID], "https://"+r.HostName()+"/updates/")
		require.Contains(t, o.RootKeysURL, "/updates/rootkeypackage-1.json")

		r.ends(workflow, agent.OutcomeInProgress, "1.0")
		r.outcome(workflow, updatedata.OutcomeInProgress)
		r.ends(workflow, agent.OutcomeSucceeded, "1.1")
		r.outcome(workflow, updatedata.OutcomeSucceeded)
		d := r.updates.Device(deviceID)
		require.Equal(t, updateID("1.1"), d.Installed)
		require.Equal(t, map[string]string{"manufacturer": "Contoso", "model": "Tractor"}, d.Properties)
		require.Len(t, d.Last().Reports, 2)
		require.Equal(t, []updatedata.Result{{Outcome: updatedata.OutcomeSucceeded, Code: 700, Extended: "00000000"}},
			d.Last().Reports[1].Steps)
		require.Equal(t, workflow, r.check().Offer.WorkflowID, "it stays in the twin")
	})
}

func TestModulesAreUpdatedLikeDevices(t *testing.T) {
	withUpdates(t, func(r *updateRig) {
		module, err := r.AddModule(deviceID, "gate")
		require.NoError(t, err)
		r.dev = module
		r.start(overMQTT(r.Hub))
		r.woken()
		r.check()
		d, err := r.updates.Deploy(updatedata.Deployment{Update: updateID("1.1"), Devices: []string{deviceID + "/gate"}})
		require.NoError(t, err)
		require.Equal(t, d.WorkflowID, r.next().Offer.WorkflowID)
		r.ends(d.WorkflowID, agent.OutcomeFailed, "1.0")
		require.NoError(t, r.updates.Wait(context.Background(), func() bool {
			state := r.updates.Device(deviceID + "/gate")
			last := state.Last()
			return last.Outcome() == updatedata.OutcomeFailed
		}))
	})
}

func TestIdleWithoutTheUpdateIsAFailure(t *testing.T) {
	withUpdates(t, func(r *updateRig) {
		workflow := r.deployVersion("1.1")
		r.next()
		r.ends(workflow, agent.OutcomeSucceeded, "1.0")
		r.outcome(workflow, updatedata.OutcomeFailed)
	})
}

func TestRetriesAreForDevicesThatFailed(t *testing.T) {
	withUpdates(t, func(r *updateRig) {
		workflow := r.deployVersion("1.1")
		r.next()
		r.ends(workflow, agent.OutcomeFailed, "1.0")
		r.outcome(workflow, updatedata.OutcomeFailed)
		for range 2 {
			require.NoError(t, r.updates.Retry(workflow))
			retry := r.next().Offer.WorkflowID
			require.Contains(t, retry, workflow+"@20")
			r.ends(retry, agent.OutcomeFailed, "1.0")
			r.outcome(retry, updatedata.OutcomeFailed)
		}
		require.NoError(t, r.updates.Retry(workflow))
		retry := r.next().Offer.WorkflowID
		r.ends(retry, agent.OutcomeSucceeded, "1.1")
		r.outcome(retry, updatedata.OutcomeSucceeded)
		require.NoError(t, r.updates.Retry(workflow))
		require.Equal(t, retry, r.check().Offer.WorkflowID, "it has succeeded")
		require.Len(t, r.updates.Device(deviceID).Workflows, 4)
		require.Error(t, r.updates.Retry("unknown"))
	})
}

func TestAWithdrawnDeploymentIsCancelled(t *testing.T) {
	withUpdates(t, func(r *updateRig) {
		workflow := r.deployVersion("1.1")
		r.next()
		r.ends(workflow, agent.OutcomeInProgress, "1.0")
		require.NoError(t, r.updates.Withdraw(workflow))
		require.Equal(t, workflow, r.next().Cancel)
		r.ends(workflow, agent.OutcomeCanceled, "1.0")
		r.outcome(workflow, updatedata.OutcomeCanceled)
		require.NotContains(t, r.desired(), "updateManifest")

		again := r.deployVersion("1.2")
		require.Equal(t, again, r.next().Offer.WorkflowID)
		require.NoError(t, r.updates.Withdraw(again))
		require.Empty(t, r.next().Cancel, "the device had not begun")
		r.outcome(again, updatedata.OutcomeCanceled)
	})
}

func TestTheTagOfATwinIsTheGroup(t *testing.T) {
	withUpdates(t, func(r *updateRig) {
		d, err := r.updates.Deploy(updatedata.Deployment{Update: updateID("1.1"),
			Properties: map[string]string{"ADUGroup": "lab"}})
		require.NoError(t, err)
		require.NoError(t, r.PatchTags(deviceID, `{"ADUGroup":"field"}`))
		require.NoError(t, r.PatchTags(deviceID, `{"ADUGroup":"lab"}`))
		require.Equal(t, d.WorkflowID, r.next().Offer.WorkflowID)
	})
}

// desired returns the desired properties.
func (r *rig) desired() string {
	twin, err := r.Twin(deviceID)
	require.NoError(r.t, err)
	return string(twin.Desired)
}
