package updatedata

import "time"

// Outcome says how far an update is at a device.
type Outcome string

// The outcomes of the service.
const (
	OutcomeInProgress Outcome = "IN_PROGRESS"
	OutcomeSucceeded  Outcome = "SUCCEEDED"
	OutcomeFailed     Outcome = "FAILED"
	OutcomeCanceled   Outcome = "CANCELED"
	OutcomeSkipped    Outcome = "SKIPPED"
)

// Terminal reports whether no other outcome follows.
func (o Outcome) Terminal() bool { return o != OutcomeInProgress && o != "" }

// Device is what the service knows of a device.
type Device struct {
	// ID is the registration id, or the device id at a hub.
	ID string
	// SDKVersion, Profile and Properties are the agent's information, as the device sent it last.
	SDKVersion string
	Profile    int
	Properties map[string]string
	// Installed is the update that the device stated last; zero for none.
	Installed UpdateID
	// Onboarding and Checks count the checks before a registration and the regular ones.
	Onboarding, Checks int
	// Seen is when the device was heard of last.
	Seen time.Time
	// Workflows are the deployments that the device was offered or has reported on, the oldest first.
	Workflows []Workflow
}

// Workflow returns the state of a deployment at the device; the zero value for one that the device
// was never offered.
func (d Device) Workflow(id string) Workflow {
	for _, w := range d.Workflows {
		if w.ID == id {
			return w
		}
	}
	return Workflow{}
}

// Last returns the deployment that the device was offered last; the zero value if there is none.
func (d Device) Last() Workflow {
	if len(d.Workflows) == 0 {
		return Workflow{}
	}
	return d.Workflows[len(d.Workflows)-1]
}

// Workflow is the state of a deployment at a device.
type Workflow struct {
	ID     string
	Update UpdateID
	// Offers is how often the device was offered it, and Offered when it was offered first.
	Offers  int
	Offered time.Time
	// Reports are the newest 100 accepted reports, the oldest first. A repetition of the newest one
	// only counts in Repeated.
	Reports  []Report
	Repeated int
}

// Outcome returns the outcome of the newest report; empty without one. After a success it stays
// OutcomeSucceeded even if the device reports OutcomeSkipped.
func (w Workflow) Outcome() Outcome {
	for _, r := range w.Reports {
		if r.Result.Outcome == OutcomeSucceeded {
			return OutcomeSucceeded
		}
	}
	if len(w.Reports) == 0 {
		return ""
	}
	return w.Reports[len(w.Reports)-1].Result.Outcome
}

// Report is a device's report on a deployment.
type Report struct {
	WorkflowID string
	Installed  UpdateID // zero for none
	Result     Result
	// Steps are the results of the steps in order; nil for none.
	Steps    []Result
	Received time.Time
}

// Result is the result of an update, or of one of its steps.
type Result struct {
	Outcome Outcome
	// Origin is the source of a failure, such as "AGENT_CORE", or "NOT_APPLICABLE".
	Origin string
	// Code is for diagnosis: 700 means success, 1 in progress, -1 cancelled.
	Code int64
	// Extended are comma-separated hexadecimal codes as sent.
	Extended string
	Details  string
}

// Key is a public key of the service in its lists.
type Key struct {
	// ID is the kid, such as "ADU.260101.R" for a root and "ADU.260101.R.S" for a signing key.
	ID   string
	Root bool
	// Disabled is set for a root that is not trusted any more, and for a revoked signing key.
	Disabled bool
	// Current is set for the keys with which the service signs.
	Current bool
}
