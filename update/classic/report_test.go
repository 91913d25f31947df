package classic_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
)

// The shapes are those of the agents that fleets use.
func TestReportsHaveTheShapesOfTheContract(t *testing.T) {
	installed := agent.UpdateID{Provider: "Contoso", Name: "Tractor", Version: "1.1"}
	zero := `"extendedResultCodes":"00000000","resultDetails":""`
	for name, c := range map[string]struct {
		report agent.Report
		want   string
	}{
		"in progress": {
			agent.Report{Result: agent.Result{Outcome: agent.OutcomeInProgress, Code: agent.CodeInProgress}},
			`"state":6,"lastInstallResult":{"resultCode":400,` + zero + `}`,
		},
		"succeeded": {
			agent.Report{Result: agent.Result{Outcome: agent.OutcomeSucceeded},
				Steps: []agent.Result{{Outcome: agent.OutcomeSucceeded}, {Outcome: agent.OutcomeSkipped}}},
			`"state":0,"lastInstallResult":{"resultCode":700,` + zero + `,"stepResults":{"step_0":{"resultCode":700,` + zero +
				`},"step_1":{"resultCode":603,` + zero + `}}}`,
		},
		"installed already": {
			agent.Report{Result: agent.Result{Outcome: agent.OutcomeSkipped}},
			`"state":0,"lastInstallResult":{"resultCode":700,` + zero + `}`,
		},
		"failed in the second of three steps": {
			agent.Report{
				Result: agent.Result{Outcome: agent.OutcomeFailed, Origin: agent.OriginAgentExtension, Code: agent.CodeFailure,
					Extended: []uint32{agent.AreaInstall.Code(7), 0xABC}, Details: "no room"},
				Steps: []agent.Result{{Outcome: agent.OutcomeSucceeded}, {Outcome: agent.OutcomeFailed,
					Extended: []uint32{agent.AreaInstall.Code(7)}, Details: "no room"}, {Outcome: agent.OutcomeSkipped}},
			},
			`"state":255,"lastInstallResult":{"resultCode":0,"extendedResultCodes":"50000007,00000ABC",` +
				`"resultDetails":"no room","stepResults":{"step_0":{"resultCode":700,` + zero + `},` +
				`"step_1":{"resultCode":0,"extendedResultCodes":"50000007","resultDetails":"no room"},` +
				`"step_2":{"resultCode":0,` + zero + `}}}`,
		},
		"cancelled": {
			agent.Report{Result: agent.Result{Outcome: agent.OutcomeCanceled, Code: agent.CodeFailure}},
			`"state":0,"lastInstallResult":{"resultCode":-1,` + zero + `}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				// An update before had more steps, whose results must not stay.
				r.report(agent.Report{WorkflowID: "wf-0", Steps: make([]agent.Result, 5)})
				c.report.WorkflowID, c.report.Installed = "wf-1", installed
				r.report(c.report)
				require.JSONEq(t, `{`+c.want+`,"workflow":{"action":3,"id":"wf-1"},`+
					`"installedUpdateId":"{\"provider\":\"Contoso\",\"name\":\"Tractor\",\"version\":\"1.1\"}"}`,
					r.reported("agent"))
				sent := r.patches()
				r.report(c.report)
				require.Equal(t, sent, r.patches(), "the same report is not sent again")
			})
		})
	}
}

func TestTheLongestReportFitsIntoATwin(t *testing.T) {
	bubble(t, func(r *rig) {
		long := agent.Result{Outcome: agent.OutcomeFailed, Extended: []uint32{1},
			Details: strings.Repeat("é", agent.MaxDetails/2)}
		steps := slices.Repeat([]agent.Result{long}, agent.MaxSteps)
		steps[0].Outcome = agent.OutcomeSucceeded
		r.report(agent.Report{WorkflowID: "wf-1", Result: long, Steps: steps})
		require.Contains(t, r.reported("agent"), `"step_31"`)
		require.Contains(t, r.reported("agent"), long.Details)
	})
}

// A connection is lost at each twin request of Check and Report, before and after the hub has it.
func TestConnectionsThatAreLostCostNothing(t *testing.T) {
	for _, kind := range []fault.Kind{fault.DropBeforeTwin, fault.DropAfterTwin} {
		for request := range 4 {
			t.Run(kind.String()+" "+strconv.Itoa(request), func(t *testing.T) {
				bubble(t, func(r *rig) {
					r.woken()
					lost := r.Inject(fault.Fault{Kind: kind, Device: deviceID, After: request})
					r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
					r.woken()
					require.Equal(t, "wf-1", r.check().Offer.WorkflowID)
					r.report(agent.Report{WorkflowID: "wf-1", Result: agent.Result{Outcome: agent.OutcomeInProgress}})
					require.NoError(t, lost.WaitFired(context.Background(), 1))
					require.Contains(t, r.reported("agent"), `"state":6`)
					require.Contains(t, r.reported("service"), `"ac":200`)
				})
			})
		}
	}
}

func TestADeploymentThatCameWhileOfflineWakesTheAgent(t *testing.T) {
	bubble(t, func(r *rig) {
		r.woken()
		offline := r.Inject(fault.Fault{Kind: fault.DropConnect, Times: -1})
		require.Equal(t, 1, r.Drop(deviceID))
		r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
		offline.Remove()
		r.woken()
		require.Equal(t, "wf-1", r.check().Offer.WorkflowID)
	})
}

func TestAnotherAgentsPropertiesAreReplaced(t *testing.T) {
	for name, before := range map[string]string{
		"of the reference agent": `{"agent":{"deviceProperties":{"manufacturer":"Contoso","model":"Tractor",` +
			`"aduVer":"DU;agent/1.1.0","interfaceId":"x"},"lastInstallResult":{"resultCode":700,` +
			`"extendedResultCode":0,"stepResults":{"step_0":{"resultCode":700}}},"state":0},` +
			`"service":{"value":{"workflow":{"action":3,"id":"wf-1"},"updateManifest":"{}"},"ac":200,"av":1}}`,
		"no object": `{"agent":5,"service":"x"}`,
		"other types": `{"agent":{"state":"idle","workflow":[],"deviceProperties":{"model":7}},` +
			`"service":{"value":0,"ac":"x"}}`,
		"no component":    `7`,
		"members of null": `{"agent":{"state":0,"workflow":{}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				_, err := r.client.PatchReported(context.Background(), []byte(`{"deviceUpdate":`+before+`}`))
				require.NoError(t, err)
				r.deploy(offer(`{"action":3,"id":"wf-2"}`, "1.1"))
				r.check()
				r.report(agent.Report{WorkflowID: "wf-2", Result: agent.Result{Outcome: agent.OutcomeSucceeded}})
				var got map[string]any
				require.NoError(t, json.Unmarshal([]byte(r.reported("agent")), &got))
				require.JSONEq(t, `{`+introduction+`,"state":0,"workflow":{"action":3,"id":"wf-2"},"lastInstallResult":`+
					`{"resultCode":700,"extendedResultCodes":"00000000","resultDetails":""}}`, r.reported("agent"))
				require.JSONEq(t, `{"value":{"workflow":{"action":3,"id":"wf-2"}},"ac":200,"av":2,"ad":""}`, r.reported("service"))
			})
		})
	}
}

// A hub that lets nobody read the twin, such as one of the basic tier, has not refused the report.
func TestAReportOutlivesATwinThatCannotBeRead(t *testing.T) {
	bubble(t, func(r *rig) {
		r.woken() // the client has read the twin
		for _, status := range []int{400, 404, 409} {
			r.Inject(fault.Fault{Kind: fault.RefuseTwin, Status: status})
			err := r.service.Report(context.Background(), &agent.Report{WorkflowID: "wf-1"})
			require.Error(t, err, status)
			require.Equal(t, transport.ScopeConnection, transport.Find(err).Scope, err)
		}
		r.report(agent.Report{WorkflowID: "wf-1"})
	})
}
