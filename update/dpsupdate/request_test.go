package dpsupdate_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/update/agent"
	"github.com/hubline-iot/hubline/update/dpsupdate"
)

const (
	info      = `{"agentInfo":{"agentSdkVersion":"1.0.0","agentProfile":1,"compatibilityProperties":`
	devices   = `{"manufacturer":"Contoso","model":"Tractor"}}`
	installed = `,"installedUpdateId":{"provider":"Contoso","name":"Tractor","version":"1.0"}`
	etags     = `,"agentInfoEtag":"aaa","serviceConfigEtag":"bbb"`
)

func TestACheckSaysWhatTheDeviceIs(t *testing.T) {
	for name, row := range map[string]struct {
		change func(q *agent.Query)
		o      *dpsupdate.Options
		call   string
		want   string
	}{
		"regular": {nil, nil, "requestSoftwareUpdates", info + devices + installed + etags + "}"},
		"onboarding": {func(q *agent.Query) { q.Onboarding, q.Installed, q.Memo = true, agent.UpdateID{}, agent.Memo{} }, nil,
			"requestOnboardingUpdates", info + devices + "}"},
		"names of drafts": {nil, &dpsupdate.Options{DraftNames: true}, "iotdps-get-deviceupdate",
			info + devices + installed + etags + "}"},
		"onboarding by a draft": {func(q *agent.Query) { q.Onboarding = true }, &dpsupdate.Options{DraftNames: true},
			"iotdps-get-onboarding-deviceupdate", info + devices + installed + etags + "}"},
		"other device": {func(q *agent.Query) {
			q.Profile, q.Properties = 7, agent.Properties{{Name: `a"b`, Value: ""}}
		}, &dpsupdate.Options{AgentVersion: "2.1"}, "requestSoftwareUpdates",
			`{"agentInfo":{"agentSdkVersion":"2.1","agentProfile":7,"compatibilityProperties":{"a\"b":""}}` + installed +
				etags + "}"},
		"TPM": {nil, &dpsupdate.Options{EndorsementKey: []byte("ek"), StorageRootKey: []byte("srk")},
			"requestSoftwareUpdates", info + devices + installed + etags +
				`,"tpm":{"endorsementKey":"ZWs=","storageRootKey":"c3Jr"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			p, q := answering(200, "{}", 0), query()
			if row.change != nil {
				row.change(q)
			}
			_, err := p.service(t, row.o).Check(t.Context(), q)
			require.NoError(t, err)
			require.Equal(t, []provisioning.Request{{Call: row.call, Body: []byte(row.want)}}, p.requests)
		})
	}
}

func TestAReportSaysHowAnUpdateStands(t *testing.T) {
	ok := `"outcome":"SUCCEEDED","failureOrigin":"NOT_APPLICABLE","resultCode":700,"extendedResultCodes":"0"`
	failed := `"outcome":"FAILED","failureOrigin":"AGENT_CORE","resultCode":-1,"extendedResultCodes":"80000001",` +
		`"resultDetails":"step two failed"`
	for name, row := range map[string]struct {
		change func(r *agent.Report)
		o      *dpsupdate.Options
		want   string
	}{
		"failed": {nil, nil, `{"workflowId":"wf-1"` + installed + `,"installResult":{` + failed +
			`,"stepResults":{"step_0":{` + ok + `},"step_1":{` + failed + `}}}}`},
		"in progress": {func(r *agent.Report) {
			r.Result = agent.Result{Outcome: agent.OutcomeInProgress, Code: 1}
		}, nil, `{"workflowId":"wf-1"` + installed + `,"installResult":{"outcome":"IN_PROGRESS",` +
			`"failureOrigin":"NOT_APPLICABLE","resultCode":1,"extendedResultCodes":"0"}}`},
		"skipped": {func(r *agent.Report) {
			r.Result, r.Steps = agent.Result{Outcome: agent.OutcomeSkipped, Code: 700, Extended: []uint32{0, 0xff}}, nil
			r.Installed = agent.UpdateID{}
		}, &dpsupdate.Options{EndorsementKey: []byte("ek")},
			`{"workflowId":"wf-1","installResult":{"outcome":"SKIPPED","failureOrigin":"NOT_APPLICABLE","resultCode":700,` +
				`"extendedResultCodes":"0,ff"},"tpm":{"endorsementKey":"ZWs="}}`},
	} {
		t.Run(name, func(t *testing.T) {
			p, r := answering(200, "{}", 0), final()
			if row.change != nil {
				row.change(r)
			}
			require.NoError(t, p.service(t, row.o).Report(t.Context(), r))
			require.Equal(t, []provisioning.Request{{Call: "reportUpdateStatus", Body: []byte(row.want)}}, p.requests)
		})
	}
}

func TestLongResultsAreCut(t *testing.T) {
	p, r := answering(200, "", 0), final()
	r.Result.Details = strings.Repeat("x", 1023) + "é"
	r.Result.Extended = make([]uint32, 200)
	for i := range r.Result.Extended {
		r.Result.Extended[i] = 0xf0000000
	}
	require.NoError(t, p.service(t, nil).Report(t.Context(), r))
	var sent struct {
		InstallResult struct{ ExtendedResultCodes, ResultDetails string }
	}
	require.NoError(t, json.Unmarshal(p.requests[0].Body, &sent))
	require.Equal(t, strings.Repeat("x", 1023), sent.InstallResult.ResultDetails)
	codes := sent.InstallResult.ExtendedResultCodes
	require.LessOrEqual(t, len(codes), 1024)
	require.Equal(t, strings.Repeat(",f0000000", 113)[1:], codes)
}

func TestWhatTheServiceWouldRefuseIsNotSent(t *testing.T) {
	id := func(provider, name, version string) func(*agent.Query) {
		return func(q *agent.Query) {
			q.Installed = agent.UpdateID{Provider: provider, Name: name, Version: version}
		}
	}
	properties := func(names ...string) func(*agent.Query) {
		return func(q *agent.Query) {
			q.Properties = nil
			for _, name := range names {
				q.Properties = append(q.Properties, agent.Property{Name: name, Value: "x"})
			}
		}
	}
	p := answering(200, "{}", 0)
	s := p.service(t, nil)
	for text, change := range map[string]func(*agent.Query){
		"profile is 0":          func(q *agent.Query) { q.Profile = 0 },
		"0 properties":          properties(),
		"6 properties":          properties("a", "b", "c", "d", "e", "f"),
		"has no name":           properties("a", ""),
		`"Model" is there`:      properties("model", "x", "Model"),
		"/Tractor 1.0":          id("", "Tractor", "1.0"),
		"Con toso":              id("Con toso", "Tractor", "1.0"),
		"C/\\xc3\\xbc 1.0":      id("C", "ü", "1.0"),
		"C/T 1\"":               id("C", "T", "1"),
		"C/T 1.2.3.4.5":         id("C", "T", "1.2.3.4.5"),
		"C/T 1..2":              id("C", "T", "1..2"),
		"C/T 1.2.\"":            id("C", "T", "1.2."),
		"C/T 1.x":               id("C", "T", "1.x"),
		strings.Repeat("n", 65): id("C", strings.Repeat("n", 65), "1.0"),
	} {
		q := query()
		change(q)
		_, err := s.Check(t.Context(), q)
		require.ErrorIs(t, err, transport.Invalid, text)
		require.ErrorContains(t, err, text)
	}
	for _, workflow := range []string{"", strings.Repeat("w", 129)} {
		r := final()
		r.WorkflowID = workflow
		require.ErrorIs(t, s.Report(t.Context(), r), transport.Invalid)
	}
	r := final()
	r.Installed.Version = "one"
	require.ErrorIs(t, s.Report(t.Context(), r), transport.Invalid)
	require.Empty(t, p.requests)
	for _, version := range []string{"1.0", "1.2.3", "0.0.0.1"} {
		q := query()
		id("Contoso.Ltd", "T-1", version)(q)
		_, err := s.Check(t.Context(), q)
		require.NoError(t, err)
	}
}

func TestWrongOptionsAreInvalid(t *testing.T) {
	client, err := provisioning.New(&provisioning.Identity{IDScope: "0ne", RegistrationID: "reg-1"}, &peer{}, nil)
	require.NoError(t, err)
	for text, o := range map[string]*dpsupdate.Options{
		"AgentVersion":   {AgentVersion: strings.Repeat("1", 65)},
		"StorageRootKey": {StorageRootKey: []byte("srk")},
	} {
		_, err := dpsupdate.New(client, o)
		require.ErrorIs(t, err, transport.Invalid)
		require.ErrorContains(t, err, text)
	}
	_, err = dpsupdate.New(nil, nil)
	require.ErrorIs(t, err, transport.Invalid)
}
