package classic_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/testkit"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
	"github.com/hubline-iot/hubline/update/agent"
)

// introduction is the property "agent" of a device without deployments.
const introduction = `"deviceProperties":{"manufacturer":"Contoso","model":"Tractor",` +
	`"contractModelId":"dtmi:azure:iot:deviceUpdateContractModel;3"},"compatPropertyNames":"manufacturer,model",` +
	`"installedUpdateId":"{\"provider\":\"Contoso\",\"name\":\"Tractor\",\"version\":\"1.0\"}"`

func TestCheckIntroducesTheDeviceOnce(t *testing.T) {
	bubble(t, func(r *rig) {
		r.woken() // by the complete properties
		require.Equal(t, &agent.Answer{}, r.check())
		require.JSONEq(t, `{`+introduction+`}`, r.reported("agent"))
		require.Empty(t, r.reported("service"))

		r.check()
		r.start(overMQTT(r.Hub))
		r.check()
		require.EqualValues(t, 1, r.patches(), "nothing differs, nothing is sent")
	})
}

func TestCheckReturnsAndAcknowledgesTheDeployment(t *testing.T) {
	bubble(t, func(r *rig) {
		r.woken()
		r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
		r.woken()
		want := &agent.Answer{Offer: &agent.Offer{
			WorkflowID: "wf-1", Signature: "a.b.c",
			Manifest:    []byte(`{"manifestVersion":"5","updateId":{"provider":"Contoso","name":"Tractor","version":"1.1"}}`),
			URLs:        map[string]string{"f1": "http://files.example.test/f1"},
			RootKeysURL: "http://files.example.test/keys.json",
		}}
		require.Equal(t, want, r.check())
		require.JSONEq(t, `{"value":{"workflow":{"action":3,"id":"wf-1"}},"ac":200,"av":2,"ad":""}`, r.reported("service"))
		sent := r.patches()
		require.Equal(t, want, r.check(), "the agent knows what it has done")
		require.Equal(t, sent, r.patches())
	})
}

func TestOtherPropertiesDoNotWakeTheAgent(t *testing.T) {
	bubble(t, func(r *rig) {
		r.woken()
		seen := make(chan string, 8)
		require.NoError(t, r.service.HandleDesired(func(_ context.Context, d device.Desired) { seen <- string(d.JSON) }))
		require.Contains(t, <-seen, `{`)
		r.woken() // a new handler begins with the complete properties
		_, err := r.PatchDesired(deviceID, `{"interval":5}`)
		require.NoError(t, err)
		require.Contains(t, <-seen, `"interval":5`)
		require.Empty(t, r.service.Wake())
		r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
		require.Equal(t, `{"$version":3}`, <-seen, "the component is the service's alone")
		r.woken()
	})
}

func TestTheProgramBindsItsSettingsBesideTheService(t *testing.T) {
	bubble(t, func(r *rig) {
		type settings struct {
			Interval int `json:"interval"`
		}
		applied := make(chan int, 8)
		binding, err := twin.Bind(r.service, &twin.Options[settings]{
			Apply:   func(_ context.Context, c twin.Change[settings]) error { applied <- c.New.Interval; return nil },
			OnError: func(err error) { t.Error(err) },
		})
		require.NoError(t, err)
		defer binding.Close()
		_, err = r.PatchDesired(deviceID, `{"interval":5}`)
		require.NoError(t, err)
		require.Equal(t, 5, <-applied)
		r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
		require.Equal(t, "wf-1", r.check().Offer.WorkflowID)
		r.Drop(deviceID) // all properties come again
		_, err = r.PatchDesired(deviceID, `{"interval":6}`)
		require.NoError(t, err)
		require.Equal(t, 6, <-applied)
	})
}

func TestRetryIsANewWorkflowForTheAgent(t *testing.T) {
	bubble(t, func(r *rig) {
		r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
		require.Equal(t, "wf-1", r.check().Offer.WorkflowID)
		r.report(agent.Report{WorkflowID: "wf-1", Result: agent.Result{Outcome: agent.OutcomeFailed}})

		r.deploy(`{"workflow":{"retryTimestamp":"2026-01-26T11:33:29.9680598Z"}}`)
		again := r.check().Offer
		require.Equal(t, "wf-1@2026-01-26T11:33:29.9680598Z", again.WorkflowID)
		r.report(agent.Report{WorkflowID: again.WorkflowID, Result: agent.Result{Outcome: agent.OutcomeInProgress}})
		retry := `{"action":3,"id":"wf-1","retryTimestamp":"2026-01-26T11:33:29.9680598Z"}`
		require.Contains(t, r.reported("agent"), `"workflow":`+retry)
		require.Contains(t, r.reported("service"), `"workflow":`+retry)

		// The next deployment has no timestamp, and the reported one goes away.
		r.deploy(`{"workflow":{"id":"wf-2","retryTimestamp":null}}`)
		require.Equal(t, "wf-2", r.check().Offer.WorkflowID)
		r.report(agent.Report{WorkflowID: "wf-2", Result: agent.Result{Outcome: agent.OutcomeInProgress}})
		require.NotContains(t, r.reported("agent")+r.reported("service"), "retryTimestamp")
		sent := r.patches()
		r.check()
		require.Equal(t, sent, r.patches(), "acknowledged once")
	})
}

func TestCancelTakesBackWhatRuns(t *testing.T) {
	bubble(t, func(r *rig) {
		r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
		r.check()
		r.report(agent.Report{WorkflowID: "wf-1", Result: agent.Result{Outcome: agent.OutcomeInProgress}})
		r.deploy(`{"workflow":{"action":255,"id":"wf-2"},"updateManifest":null,"updateManifestSignature":null}`)
		require.Equal(t, &agent.Answer{Cancel: "wf-1"}, r.check())
		require.Contains(t, r.reported("agent"), `"state":6`, "the agent ends what runs")
		r.report(agent.Report{WorkflowID: "wf-1", Result: agent.Result{Outcome: agent.OutcomeCanceled}})
		require.Contains(t, r.reported("agent"), `"resultCode":-1`)
		require.Contains(t, r.reported("agent"), `"state":0,"workflow":{"action":3,"id":"wf-1"}`)
		r.check()
		require.Contains(t, r.reported("agent"), `"state":0,"workflow":{"action":255,"id":"wf-2"}`)
	})
}

func TestAMalformedDeploymentDoesNotHideWhatRuns(t *testing.T) {
	bubble(t, func(r *rig) {
		r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
		r.check()
		r.report(agent.Report{WorkflowID: "wf-1", Result: agent.Result{Outcome: agent.OutcomeInProgress}})
		r.deploy(`{"workflow":{"action":3,"id":"wf-2"},"updateManifest":null}`)
		_, err := r.service.Check(context.Background(), &query)
		require.ErrorIs(t, err, transport.Protocol)
		require.Contains(t, r.reported("service"), `"ac":400`)
		require.Contains(t, r.reported("agent"), `"state":6,"workflow":{"action":3,"id":"wf-1"}`)
		r.deploy(`{"workflow":{"action":255,"id":"wf-2"},"updateManifestSignature":null}`)
		require.Equal(t, &agent.Answer{Cancel: "wf-1"}, r.check())
	})
}

func TestCancelBeforeTheUpdateBeganComesAfterwards(t *testing.T) {
	bubble(t, func(r *rig) {
		r.woken()
		r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
		r.woken()
		r.check()
		r.deploy(`{"workflow":{"action":255,"id":"wf-1"}}`)
		r.woken()
		require.Equal(t, &agent.Answer{}, r.check())
		r.report(agent.Report{WorkflowID: "wf-1", Result: agent.Result{Outcome: agent.OutcomeInProgress}})
		r.woken()
		require.Equal(t, &agent.Answer{Cancel: "wf-1"}, r.check())
	})
}

func TestCancelOfAFailedDeploymentIsIdle(t *testing.T) {
	bubble(t, func(r *rig) {
		r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
		r.check()
		r.report(agent.Report{WorkflowID: "wf-1", Result: agent.Result{Outcome: agent.OutcomeFailed, Details: "no room"}})
		require.Contains(t, r.reported("agent"), `"state":255`)
		r.deploy(`{"workflow":{"action":255,"id":"wf-1"}}`)
		r.check()
		require.Contains(t, r.reported("agent"), `"state":0,"workflow":{"action":255,"id":"wf-1"}`)
		require.Contains(t, r.reported("agent"), `no room`, "the result stays")
	})
}

func TestDeploymentsAgainstTheContractAreRefusedInTheTwin(t *testing.T) {
	long := strings.Repeat("w", agent.MaxWorkflowID+1)
	const content = `"updateManifest":"{}","updateManifestSignature":"a.b.c"`
	for name, property := range map[string]string{
		"a text":                 `"now"`,
		"no workflow":            `{` + content + `}`,
		"no id":                  `{"workflow":{"action":3},` + content + `}`,
		"action as a text":       `{"workflow":{"action":"3","id":"wf-1"}}`,
		"action of a preview":    `{"workflow":{"action":0,"id":"wf-1"}}`,
		"no manifest":            `{"workflow":{"action":3,"id":"wf-1"},"updateManifestSignature":"a.b.c"}`,
		"manifest as an object":  `{"workflow":{"action":3,"id":"wf-1"},"updateManifest":{},"updateManifestSignature":"a"}`,
		"no signature":           `{"workflow":{"action":3,"id":"wf-1"},"updateManifest":"{}"}`,
		"URLs as a text":         `{"workflow":{"action":3,"id":"w"},` + content + `,"fileUrls":"f"}`,
		"URL as a number":        `{"workflow":{"action":3,"id":"w"},` + content + `,"fileUrls":{"f":1}}`,
		"id that is too long":    `{"workflow":{"action":3,"id":"` + long + `"},` + content + `}`,
		"id with the retry mark": `{"workflow":{"action":3,"id":"w@1"},` + content + `}`,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(r *rig) {
				r.deploy(property)
				_, err := r.service.Check(context.Background(), &query)
				require.ErrorIs(t, err, transport.Protocol)
				require.Contains(t, r.reported("service"), `"ac":400`)
				if strings.Contains(property, `"id":"w`) && !strings.Contains(name, "id ") {
					require.Contains(t, r.reported("agent"), `"state":255`)
					require.Contains(t, r.reported("agent"), `"extendedResultCodes":"10000000"`)
				} else {
					require.NotContains(t, r.reported("agent"), `"state"`)
				}
				sent := r.patches()
				_, err = r.service.Check(context.Background(), &query)
				require.Error(t, err)
				require.Equal(t, sent, r.patches(), "refused once")
			})
		})
	}
}

func TestURLsThatAreNullAreNone(t *testing.T) {
	bubble(t, func(r *rig) {
		r.deploy(`{"workflow":{"action":3,"id":"wf-1"},"updateManifest":"{}","updateManifestSignature":"a.b.c"}`)
		require.Empty(t, r.check().Offer.URLs)
		// A hub would take null as a removal; over the network it may come nevertheless.
		r.deploy(`{"fileUrls":{"f1":"http://files.example.test/f1","f2":null}}`)
		require.Len(t, r.check().Offer.URLs, 1)
	})
}

func TestTwinsComeOverAMQP(t *testing.T) {
	testkit.In2030(t, func(t *testing.T) {
		r := newRig(t)
		r.start(overAMQP(r.Hub))
		r.woken()
		r.deploy(offer(`{"action":3,"id":"wf-1"}`, "1.1"))
		r.woken()
		require.Equal(t, "wf-1", r.check().Offer.WorkflowID)
		r.report(agent.Report{WorkflowID: "wf-1", Result: agent.Result{Outcome: agent.OutcomeInProgress}})
		require.Contains(t, r.reported("agent"), `"state":6`)
	})
}

func TestChecksBeforeTheRegistrationAreUnsupported(t *testing.T) {
	bubble(t, func(r *rig) {
		_, err := r.service.Check(context.Background(), &agent.Query{Onboarding: true})
		require.ErrorIs(t, err, transport.Unsupported)
	})
}
