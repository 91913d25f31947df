package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// A shownAgent is what the update service knows of a device.
type shownAgent struct {
	Device     string               `json:"device"`
	SDKVersion string               `json:"sdkVersion,omitempty"`
	Profile    int                  `json:"profile,omitempty"`
	Properties map[string]string    `json:"properties"`
	Installed  *updatedata.UpdateID `json:"installed,omitempty"`
	Onboarding int                  `json:"onboarding"`
	Checks     int                  `json:"checks"`
	Seen       *time.Time           `json:"seen,omitempty"`
	Workflows  []shownWorkflow      `json:"workflows"`
}

type shownWorkflow struct {
	Workflow string              `json:"workflow"`
	Update   updatedata.UpdateID `json:"update"`
	Outcome  string              `json:"outcome"`
	Offers   int                 `json:"offers"`
	Offered  time.Time           `json:"offered"`
	Repeated int                 `json:"repeated"`
	Reports  []shownReport       `json:"reports"`
}

type shownReport struct {
	shownResult
	Received  time.Time            `json:"received"`
	Installed *updatedata.UpdateID `json:"installed,omitempty"`
	Steps     []shownResult        `json:"steps,omitempty"`
}

type shownResult struct {
	Outcome  string `json:"outcome"`
	Origin   string `json:"origin"`
	Code     int64  `json:"code"`
	Extended string `json:"extended"`
	Details  string `json:"details,omitempty"`
}

func showResult(r updatedata.Result) shownResult {
	return shownResult{string(r.Outcome), r.Origin, r.Code, r.Extended, r.Details}
}

// optional returns nil for no update.
func optional(id updatedata.UpdateID) *updatedata.UpdateID {
	if id == (updatedata.UpdateID{}) {
		return nil
	}
	return &id
}

func showAgent(d updatedata.Device) shownAgent {
	one := shownAgent{d.ID, d.SDKVersion, d.Profile, d.Properties, optional(d.Installed), d.Onboarding, d.Checks, nil,
		[]shownWorkflow{}}
	if !d.Seen.IsZero() {
		one.Seen = &d.Seen
	}
	if one.Properties == nil {
		one.Properties = map[string]string{}
	}
	for _, w := range d.Workflows {
		reports := []shownReport{}
		for _, r := range w.Reports {
			shown := shownReport{showResult(r.Result), r.Received, optional(r.Installed), nil}
			for _, step := range r.Steps {
				shown.Steps = append(shown.Steps, showResult(step))
			}
			reports = append(reports, shown)
		}
		one.Workflows = append(one.Workflows, shownWorkflow{w.ID, w.Update, outcomeText(w), w.Offers, w.Offered, w.Repeated,
			reports})
	}
	return one
}

func (c *control) updateDevices(r *call) (any, *refusal) {
	return map[string]any{"devices": each(c.provider.updates.Devices(), showAgent)}, r.query()
}

func (c *control) updateDevice(r *call) (any, *refusal) {
	return showAgent(c.provider.updates.Device(r.PathValue("registration"))), r.query()
}

// outcomeNames are the states of a deployment at a device, and any.
var outcomeNames = map[string]string{"OFFERED": "OFFERED", "IN_PROGRESS": "IN_PROGRESS", "SUCCEEDED": "SUCCEEDED",
	"FAILED": "FAILED", "CANCELED": "CANCELED", "SKIPPED": "SKIPPED"}

// waitUpdate waits until a device has brought a deployment, or any, to an outcome; without one, to
// any final one.
func (c *control) waitUpdate(r *call) (any, *refusal) {
	outcome, workflow := "", ""
	id := r.PathValue("registration")
	now := func() any { return showAgent(c.provider.updates.Device(id)) }
	problem := c.waits(r, now, func(ctx context.Context) error {
		return c.provider.updates.Wait(ctx, func() bool {
			for _, w := range c.provider.updates.Device(id).Workflows {
				if (workflow == "" || workflow == w.ID) &&
					(outcomeText(w) == outcome || outcome == "" && w.Outcome().Terminal()) {
					return true
				}
			}
			return false
		})
	}, choice("outcome", outcomeNames, &outcome), text("workflow", &workflow))
	return now(), problem
}

func (c *control) updateKeys(r *call) (any, *refusal) { return c.shownKeys(), r.query() }

func (c *control) shownKeys() any {
	type key struct {
		Key      string `json:"key"`
		Root     bool   `json:"root"`
		Current  bool   `json:"current"`
		Disabled bool   `json:"disabled"`
	}
	all := []key{}
	for _, k := range c.provider.updates.Keys() {
		all = append(all, key{k.ID, k.Root, k.Current, k.Disabled})
	}
	return map[string]any{"keys": all}
}

func (c *control) rootKeys(r *call) (any, *refusal) {
	return json.RawMessage(c.provider.updates.RootKeyPackage()), r.query()
}

func (c *control) rotateKeys(r *call) (any, *refusal) {
	root := false
	if problem := r.read(flagField("root", &root)); problem != nil {
		return nil, problem
	}
	if root {
		c.provider.updates.RotateRoot()
	} else {
		c.provider.updates.RotateSigningKey()
	}
	return c.shownKeys(), nil
}

func (c *control) revokeKey(r *call) (any, *refusal) {
	c.provider.updates.RevokeSigningKey()
	return c.shownKeys(), nil
}

func (c *control) disableRoot(r *call) (any, *refusal) {
	err := c.provider.updates.DisableRoot(r.PathValue("key"))
	return c.shownKeys(), updateRefusal("key", err)
}
