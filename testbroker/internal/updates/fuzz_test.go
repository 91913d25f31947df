package updates

import (
	"encoding/json"
	"testing"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// FuzzRequests reads any body as a check and as a report. What the service takes, it can answer and
// keep, and a refusal has a code of the service with its status.
func FuzzRequests(f *testing.F) {
	for _, s := range []string{
		`{"agentInfo":{"agentSdkVersion":"1.0.0","agentProfile":1,"compatibilityProperties":{"model":"x"}},` +
			`"installedUpdateId":{"provider":"a","name":"b","version":"1.0"},"agentInfoEtag":"a","serviceConfigEtag":"s"}`,
		`{"workflowId":"wf-1","installResult":{"outcome":"FAILED","failureOrigin":"DEVICE","resultCode":-1,` +
			`"extendedResultCodes":"80000001,0x1","stepResults":{"step_0":{"outcome":"SKIPPED","failureOrigin":` +
			`"NOT_APPLICABLE","resultCode":9223372036854775807,"extendedResultCodes":"0"}}}}`,
		`{"agentInfo":null}`, `{"a":[{"b":1,"b":[]}]}`, `[]`, `{"workflowId":"\ud800"}`, ``,
	} {
		f.Add([]byte(s))
	}
	id := updatedata.UpdateID{Provider: "a", Name: "b", Version: "2.0"}
	s := newService(f, Options{Seed: 7})
	if err := s.Publish(updatedata.Update{ID: id, Compatibility: []map[string]string{{"model": "x"}},
		Steps: []updatedata.Step{{Handler: "a/b:1"}}}); err != nil {
		f.Fatal(err)
	}
	if _, err := s.Deploy(updatedata.Deployment{WorkflowID: "wf-1", Update: id, Incompatible: true}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s.Reset()
		if _, err := s.Deploy(updatedata.Deployment{WorkflowID: "wf-1", Update: id, Incompatible: true}); err != nil {
			t.Fatal(err)
		}
		check := func(answer []byte, bad *Error) {
			switch {
			case bad == nil && !json.Valid(answer):
				t.Fatalf("%s: answered with %s", body, answer)
			case bad != nil && (bad.Code.Number() == 0 || bad.Number/1000 != bad.Code.Number()/1000 || bad.Text == ""):
				t.Fatalf("%s: %+v", body, bad)
			}
		}
		for _, onboarding := range []bool{true, false} {
			answer, _, bad := s.Check("dev-1", onboarding, body, nil)
			check(answer, bad)
		}
		s.Offer("dev-1", nil)
		answer, _, bad := s.Report("dev-1", body)
		check(answer, bad)
		again, r, bad := s.Report("dev-1", body)
		check(again, bad)
		if w := s.Device("dev-1").Workflow("wf-1"); bad == nil && (w.Repeated != 1 || w.Outcome() != r.Result.Outcome) {
			t.Fatalf("%s: %+v", body, w)
		}
	})
}
