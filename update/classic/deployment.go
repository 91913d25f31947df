package classic

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hubline-iot/hubline/device"
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
	"github.com/hubline-iot/hubline/twin"
	"github.com/hubline-iot/hubline/update/agent"
)

// Actions of a workflow.
const (
	actionDeploy = 3
	actionCancel = 255
)

// workflow names a deployment. The service retries a deployment under the same id with another
// timestamp.
type workflow struct {
	Action int64  `json:"action"`
	ID     string `json:"id"`
	Retry  string `json:"retryTimestamp,omitempty"`
}

// retryMark stands between id and timestamp in the agent's name of a workflow. A retry is another
// workflow for the agent.
const retryMark = "@"

// name returns the agent's name of the workflow.
func (w workflow) name() string {
	if w.Retry == "" {
		return w.ID
	}
	return w.ID + retryMark + w.Retry
}

// named returns the workflow that the agent gives this name.
func named(name string) workflow {
	id, retry, _ := strings.Cut(name, retryMark)
	return workflow{Action: actionDeploy, ID: id, Retry: retry}
}

// deployment is what the service wants: the property "service".
type deployment struct {
	version  int64 // of the desired properties
	workflow workflow
	offer    agent.Offer // for actionDeploy
}

// answer returns the deployment for the agent. A cancellation is for the workflow in progress,
// whatever its own id is.
func (d *deployment) answer(inProgress string) *agent.Answer {
	switch {
	case d == nil:
		return &agent.Answer{}
	case d.cancels():
		return &agent.Answer{Cancel: inProgress}
	}
	return &agent.Answer{Offer: &d.offer}
}

func (d *deployment) cancels() bool { return d != nil && d.workflow.Action == actionCancel }

// desired returns the deployment in a twin, nil if there is none. The error, of Kind Protocol, says
// why the deployment cannot be taken; its workflow is then returned as far as it is known.
func desired(t *device.Twin) (*deployment, error) {
	all, err := twin.Properties(device.Desired{Version: t.DesiredVersion, Full: true, JSON: t.Desired}, component)
	for _, p := range all {
		if p.Component == component && p.Name == serviceProperty && !p.Removed() {
			d := &deployment{version: p.Version}
			return d, d.parse(p.Value)
		}
	}
	return nil, err
}

var (
	errNoWorkflow = errors.New("it has no workflow with an action and an id")
	errBadName    = errors.New("the id of its workflow and its retryTimestamp are too long, or have the character " +
		retryMark)
	errIncomplete = errors.New("it has no updateManifest, or no updateManifestSignature, as a text")
	errBadURLs    = errors.New("its fileUrls are not an object with texts")
)

// parse reads the property.
func (d *deployment) parse(property []byte) error {
	fields, _ := jsonscan.Member(property, "workflow")
	action, _ := jsonscan.Member(fields, "action")
	number, ok := jsonscan.Int(action)
	d.workflow = workflow{Action: number, ID: jsonscan.TextOf(fields, "id"),
		Retry: jsonscan.TextOf(fields, "retryTimestamp")}
	name := d.workflow.name()
	switch {
	case !ok || d.workflow.ID == "":
		return refuse(errNoWorkflow)
	case len(name) > agent.MaxWorkflowID || named(name).ID != d.workflow.ID || named(name).Retry != d.workflow.Retry:
		d.workflow.ID = "" // nothing can be reported about it
		return refuse(errBadName)
	case number == actionCancel:
		return nil
	case number != actionDeploy:
		return refuse(fmt.Errorf("the action %d of its workflow is unknown; 3 deploys and 255 cancels", number))
	}
	d.offer = agent.Offer{
		WorkflowID: name, Manifest: []byte(jsonscan.TextOf(property, "updateManifest")),
		Signature:   jsonscan.TextOf(property, "updateManifestSignature"),
		RootKeysURL: jsonscan.TextOf(property, "rootKeyPackageUrl"),
		URLs:        map[string]string{},
	}
	if len(d.offer.Manifest) == 0 || d.offer.Signature == "" {
		return refuse(errIncomplete)
	}
	return d.parseURLs(property)
}

func (d *deployment) parseURLs(property []byte) error {
	urls, ok := jsonscan.Member(property, "fileUrls")
	if !ok || string(urls) == "null" {
		return nil // of an update without files
	}
	valid := true
	isObject := jsonscan.Members(urls, func(id string, raw []byte) {
		switch {
		case string(raw) == "null": // a URL that the service takes back
		case raw[0] != '"':
			valid = false
		default:
			d.offer.URLs[id] = jsonscan.Text(raw)
		}
	})
	if !isObject || !valid {
		return refuse(errBadURLs)
	}
	return nil
}

func refuse(err error) error {
	return &transport.Error{Kind: transport.Protocol, Op: transport.OpTwinGet,
		Err: fmt.Errorf("the property %s of component %s cannot be taken: %w", serviceProperty, component, err)}
}
