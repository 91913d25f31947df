package updates

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// Actions and states of the component deviceUpdate.
const (
	actionDeploy = 3
	actionCancel = 255

	stateIdle       = 0
	stateInProgress = 6
	stateFailed     = 255
)

// A workflow names a deployment in both properties.
type workflow struct {
	Action int    `json:"action"`
	ID     string `json:"id"`
	Retry  string `json:"retryTimestamp,omitempty"`
}

// name returns the id under which the service records the workflow: a retry has a record of its
// own.
func (w workflow) name() string {
	if w.Retry == "" {
		return w.ID
	}
	return w.ID + "@" + w.Retry
}

// An agentProperty is the reported property "agent". The group is the tag of the twin.
type agentProperty struct {
	DeviceProperties map[string]string `json:"deviceProperties"`
	Names            string            `json:"compatPropertyNames"`
	InstalledID      string            `json:"installedUpdateId"`
	Result           struct {
		resultProperty
		Steps map[string]resultProperty `json:"stepResults"`
	} `json:"lastInstallResult"`
	State    *int     `json:"state"`
	Workflow workflow `json:"workflow"`

	group string
}

// A resultProperty is a result. Agents of contract model 2 report a number as the extended code.
type resultProperty struct {
	Code     int64  `json:"resultCode"`
	Extended string `json:"extendedResultCodes"`
	Single   int32  `json:"extendedResultCode"`
	Details  string `json:"resultDetails"`
}

// groupTag is the tag that puts a device into a group. For deployments it is a property.
const groupTag = "ADUGroup"

// readAgent returns what the agent of a twin reports; nil if there is none.
func readAgent(t *hubdata.Twin) *agentProperty {
	var reported struct {
		Component struct {
			Agent agentProperty `json:"agent"`
		} `json:"deviceUpdate"`
	}
	var tags map[string]any
	_, _ = json.Unmarshal(t.Reported, &reported), json.Unmarshal(t.Tags, &tags) // what cannot be read is not there
	a := &reported.Component.Agent
	a.group, _ = tags[groupTag].(string)
	if a.DeviceProperties["contractModelId"] == "" {
		return nil
	}
	return a
}

// knowsRootKeys reports whether the agent's contract model has the root key package.
func (a *agentProperty) knowsRootKeys() bool {
	return a.DeviceProperties["contractModelId"] == "dtmi:azure:iot:deviceUpdateContractModel;3"
}

// compatibility returns the properties by which updates are chosen.
func (a *agentProperty) compatibility() map[string]string {
	set := make(map[string]string)
	for name := range strings.SplitSeq(a.Names, ",") {
		if value, ok := a.DeviceProperties[name]; ok {
			set[name] = value
		}
	}
	if a.group != "" {
		set[groupTag] = a.group
	}
	return set
}

func (a *agentProperty) installed() (id updatedata.UpdateID) {
	_ = json.Unmarshal([]byte(a.InstalledID), &id) // what cannot be read is no update
	return id
}

// report returns what the state of the agent says about a workflow; false for nothing.
func (a *agentProperty) report(w *updatedata.Workflow) (r updatedata.Report, ok bool) {
	if a.State == nil {
		return r, false
	}
	r = updatedata.Report{WorkflowID: w.ID, Installed: a.installed(), Result: a.Result.result()}
	switch {
	case *a.State == stateInProgress:
		r.Result.Outcome = updatedata.OutcomeInProgress
	case *a.State == stateFailed:
		r.Result.Outcome = updatedata.OutcomeFailed
	case *a.State != stateIdle:
		return r, false
	case a.Workflow.Action == actionCancel || a.Result.Code == -1:
		r.Result.Outcome = updatedata.OutcomeCanceled
	case a.installed() == w.Update:
		r.Result.Outcome = updatedata.OutcomeSucceeded
	default:
		r.Result.Outcome, r.Result.Details = updatedata.OutcomeFailed, "idle, but installedUpdateId is not the update"
	}
	for i := range len(a.Result.Steps) {
		step := a.Result.Steps[fmt.Sprintf("step_%d", i)]
		r.Steps = append(r.Steps, step.result())
	}
	return r, true
}

// result returns the result, with the outcome that the code of a step has.
func (p *resultProperty) result() updatedata.Result {
	r := updatedata.Result{Outcome: updatedata.OutcomeFailed, Code: p.Code, Extended: p.Extended, Details: p.Details}
	if r.Extended == "" && p.Single != 0 {
		r.Extended = fmt.Sprintf("%08X", uint32(p.Single))
	}
	switch {
	case p.Code == 603:
		r.Outcome = updatedata.OutcomeSkipped
	case p.Code > 0:
		r.Outcome = updatedata.OutcomeSucceeded
	case p.Code == -1:
		r.Outcome = updatedata.OutcomeCanceled
	}
	return r
}

// A serviceProperty is the desired property "service", as far as the service reads it.
type serviceProperty struct {
	Workflow workflow       `json:"workflow"`
	URLs     map[string]any `json:"fileUrls"`
}

func readProperty(t *hubdata.Twin) serviceProperty {
	var desired struct {
		Component struct {
			Service serviceProperty `json:"service"`
		} `json:"deviceUpdate"`
	}
	_ = json.Unmarshal(t.Desired, &desired) // what cannot be read is replaced
	return desired.Component.Service
}

// members is an object of a patch; nil removes a member.
type members map[string]any

func patch(service members) members {
	return members{"deviceUpdate": members{"__t": "c", "service": service}}
}

// deploy returns the patch that makes an offer of the property. Contract models before 3 have no
// root key package, and their agents may refuse it.
func (p serviceProperty) deploy(o *Offer, rootKeys bool) members {
	urls := members{}
	for id := range p.URLs {
		urls[id] = nil
	}
	for id, url := range o.URLs {
		urls[id] = url
	}
	service := members{
		"workflow":       members{"action": actionDeploy, "id": o.WorkflowID, "retryTimestamp": nil},
		"updateManifest": string(o.Manifest), "updateManifestSignature": o.Signature, "fileUrls": urls,
		"rootKeyPackageUrl": nil,
	}
	if rootKeys {
		service["rootKeyPackageUrl"] = o.RootKeys
	}
	return patch(service)
}

// retry returns the patch that makes the device try again.
func (p serviceProperty) retry(timestamp string) members {
	return patch(members{"workflow": members{"retryTimestamp": timestamp}})
}

// cancel returns the patch that takes the deployment back.
func (p serviceProperty) cancel() members {
	return patch(members{
		"workflow":       members{"action": actionCancel, "id": p.Workflow.ID, "retryTimestamp": nil},
		"updateManifest": nil, "updateManifestSignature": nil, "fileUrls": nil, "rootKeyPackageUrl": nil,
	})
}
