package classic

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
	"github.com/hubline-iot/hubline/update/agent"
)

// States of an agent.
const (
	stateIdle       = 0
	stateInProgress = 6
	stateFailed     = 255
)

// agentInfo is the property "agent". A member that is nil or empty is not in it.
type agentInfo struct {
	DeviceProperties    map[string]string `json:"deviceProperties,omitempty"`
	CompatPropertyNames string            `json:"compatPropertyNames,omitempty"`
	InstalledUpdateID   string            `json:"installedUpdateId,omitempty"`
	LastInstallResult   *result           `json:"lastInstallResult,omitempty"`
	State               *int              `json:"state,omitempty"`
	Workflow            *workflow         `json:"workflow,omitempty"`
}

// reported is the component in the reported properties.
type reported struct {
	acknowledged json.RawMessage // the property "service"
	before       json.RawMessage // the property "agent"
	agent        agentInfo       // what "agent" shall be
}

func readReported(t *device.Twin) (*reported, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(t.Reported, &all); err != nil {
		return nil, &transport.Error{Kind: transport.Protocol, Op: transport.OpTwinGet,
			Err: fmt.Errorf("the reported properties are not a JSON object: %w", err)}
	}
	var properties map[string]json.RawMessage
	_ = json.Unmarshal(all[component], &properties) // what is no object is replaced
	r := &reported{acknowledged: properties[serviceProperty], before: properties[agentProperty]}
	if json.Unmarshal(r.before, &r.agent) != nil {
		// Another program has reported something else. What could be read stays.
		if object := map[string]json.RawMessage(nil); json.Unmarshal(r.before, &object) != nil || object == nil {
			r.before = json.RawMessage("{}")
		}
	}
	return r, nil
}

// addTo adds the changes of "agent" to a patch.
func (r *reported) addTo(patch *twin.Patch) error {
	want, err := json.Marshal(r.agent)
	if err != nil {
		return err
	}
	changes, err := twin.Diff(r.before, want)
	if err != nil || changes == nil {
		return err
	}
	patch.Report(component, agentProperty, json.RawMessage(changes))
	return nil
}

// acknowledge answers the deployment in the patch unless the twin has the answer. The value names
// the workflow only, because a twin has little room. It removes what other agents have answered.
func (r *reported) acknowledge(patch *twin.Patch, d *deployment, wrong error) {
	if d == nil {
		return
	}
	value := map[string]any{
		"workflow":       map[string]any{"action": d.workflow.Action, "id": d.workflow.ID, "retryTimestamp": nil},
		"updateManifest": nil, "updateManifestSignature": nil, "fileUrls": nil, "rootKeyPackageUrl": nil,
	}
	if d.workflow.Retry != "" {
		value["workflow"] = d.workflow
	}
	answer := twin.Answer{Status: twin.StatusOK, Value: value}
	if wrong != nil {
		answer.Status, answer.Description = twin.StatusBadValue, wrong.Error()
	}
	var have struct {
		Value struct {
			Workflow workflow `json:"workflow"`
		} `json:"value"`
		Status int `json:"ac"`
	}
	if json.Unmarshal(r.acknowledged, &have) == nil && have.Status == answer.Status && have.Value.Workflow == d.workflow {
		return
	}
	patch.Answer(twin.Property{Component: component, Name: serviceProperty, Version: d.version}, answer)
}

// introduce sets what the service chooses updates by.
func (a *agentInfo) introduce(q *agent.Query) {
	a.DeviceProperties = map[string]string{"contractModelId": ModelID}
	names := make([]string, 0, len(q.Properties))
	for _, p := range q.Properties {
		a.DeviceProperties[p.Name] = p.Value
		names = append(names, p.Name)
	}
	a.CompatPropertyNames = strings.Join(names, ",")
	a.setInstalled(q.Installed)
}

// accept reports what the agent does not: that a cancellation has nothing to cancel, and that a
// deployment was refused. It leaves a workflow in progress to the agent, which reports its end.
func (a *agentInfo) accept(d *deployment, wrong error) {
	switch {
	case d == nil || d.workflow.ID == "" || a.inProgress() != "":
	case wrong != nil:
		a.setState(stateFailed, d.workflow)
		a.LastInstallResult = &result{Extended: extended([]uint32{agent.AreaManifest.Code(0)}), Details: wrong.Error()}
	case d.cancels():
		a.setState(stateIdle, d.workflow)
	}
}

// inProgress returns the agent's name of the workflow in progress, empty if there is none.
func (a *agentInfo) inProgress() string {
	if a.State == nil || *a.State != stateInProgress || a.Workflow == nil {
		return ""
	}
	return a.Workflow.name()
}

func (a *agentInfo) setState(state int, w workflow) { a.State, a.Workflow = &state, &w }

func (a *agentInfo) setInstalled(id agent.UpdateID) {
	if id == (agent.UpdateID{}) {
		return // not known: what was reported stays
	}
	text, _ := json.Marshal(struct { // of texts: it cannot fail
		Provider string `json:"provider"`
		Name     string `json:"name"`
		Version  string `json:"version"`
	}(id))
	a.InstalledUpdateID = string(text)
}
