package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// A shownUpdate is a published update without the content of its files.
type shownUpdate struct {
	Update        updatedata.UpdateID `json:"update"`
	Description   string              `json:"description,omitempty"`
	Compatibility []map[string]string `json:"compatibility"`
	Steps         []shownStep         `json:"steps"`
	Files         []shownFile         `json:"files"`
}

type shownStep struct {
	Handler     string               `json:"handler,omitempty"`
	Description string               `json:"description,omitempty"`
	Files       []string             `json:"files,omitempty"`
	Properties  json.RawMessage      `json:"handlerProperties,omitempty"`
	Reference   *updatedata.UpdateID `json:"reference,omitempty"`
}

type shownFile struct {
	Name   string `json:"name"`
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"` // in base64
}

func showUpdate(u updatedata.Update) shownUpdate {
	all := shownUpdate{u.ID, u.Description, u.Compatibility, []shownStep{}, []shownFile{}}
	for _, s := range u.Steps {
		one := shownStep{Handler: s.Handler, Description: s.Description, Files: s.Files, Properties: s.Properties}
		if s.Handler == "" {
			one.Reference = &s.Reference
		}
		all.Steps = append(all.Steps, one)
	}
	var add func(files []updatedata.File)
	add = func(files []updatedata.File) {
		for _, f := range files {
			sum := sha256.Sum256(f.Content)
			all.Files = append(all.Files, shownFile{f.Name, len(f.Content), base64.StdEncoding.EncodeToString(sum[:])})
			add(f.Related)
		}
	}
	add(u.Files)
	return all
}

// updateRefusal returns the refusal for an error of the update service.
func updateRefusal(field string, err error) *refusal {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, testbroker.ErrUpdateNotFound):
		return &refusal{status: http.StatusNotFound, Field: field, Problem: err.Error(),
			Fix: "GET /updates and GET /updates/deployments list what is there"}
	case errors.Is(err, testbroker.ErrUpdateInUse):
		return &refusal{status: http.StatusConflict, Field: field, Problem: err.Error(),
			Fix: "remove the updates that refer to it first"}
	}
	return bad(field, err.Error(), "change it")
}

func (c *control) listUpdates(r *call) (any, *refusal) {
	return map[string]any{"updates": each(c.provider.updates.Updates.Updates(), showUpdate)}, r.query()
}

func (c *control) publish(r *call) (any, *refusal) {
	var manifest, files json.RawMessage
	if problem := r.read(object("importManifest", &manifest), object("files", &files)); problem != nil {
		return nil, problem
	}
	if manifest == nil {
		return nil, bad("importManifest", "is missing", "give the import manifest of the update")
	}
	var content map[string][]byte
	if err := json.Unmarshal(files, &content); files != nil && err != nil {
		return nil, bad("files", "has a value that is no base64", "give the content of each file by its name")
	}
	u, err := updatedata.ParseImport(manifest, func(name string) ([]byte, error) {
		b, ok := content[name]
		if !ok {
			return nil, fmt.Errorf("file %q is missing in files", name)
		}
		return b, nil
	})
	if err == nil {
		err = c.provider.updates.Publish(u)
	}
	return showUpdate(u), updateRefusal("importManifest", err)
}

func (c *control) reloadUpdates(r *call) (any, *refusal) {
	c.mu.Lock() // one at a time
	defer c.mu.Unlock()
	published, removed, err := c.provider.updates.reload()
	return map[string]any{"published": each(published, updatedata.UpdateID.String),
		"removed": each(removed, updatedata.UpdateID.String)}, updateRefusal("updates", err)
}

func (c *control) removeUpdate(r *call) (any, *refusal) {
	id := updatedata.UpdateID{Provider: r.PathValue("provider"), Name: r.PathValue("name"),
		Version: r.PathValue("version")}
	return map[string]any{}, updateRefusal("update", c.provider.updates.Remove(id))
}

// A shownDeployment is a deployment with the number of devices in each state.
type shownDeployment struct {
	Workflow     string              `json:"workflow"`
	Update       updatedata.UpdateID `json:"update"`
	Devices      []string            `json:"devices,omitempty"`
	Properties   map[string]string   `json:"properties,omitempty"`
	Percent      int                 `json:"percent,omitempty"`
	Incompatible bool                `json:"incompatible"`
	KeepOffering bool                `json:"keepOffering"`
	Outcomes     map[string]int      `json:"outcomes"`
}

func showDeployment(d updatedata.Deployment, devices []updatedata.Device) shownDeployment {
	one := shownDeployment{d.WorkflowID, d.Update, d.Devices, d.Properties, d.Percent, d.Incompatible, d.KeepOffering,
		make(map[string]int)}
	for _, dev := range devices {
		if w := dev.Workflow(d.WorkflowID); w.ID != "" {
			one.Outcomes[outcomeText(w)]++
		}
	}
	return one
}

// outcomeText is the state of a deployment at a device.
func outcomeText(w updatedata.Workflow) string {
	if o := w.Outcome(); o != "" {
		return string(o)
	}
	return "OFFERED"
}

func (c *control) deployments(r *call) (any, *refusal) {
	devices := c.provider.updates.Devices()
	return map[string]any{"deployments": each(c.provider.updates.Deployments(),
		func(d updatedata.Deployment) shownDeployment { return showDeployment(d, devices) })}, r.query()
}

func (c *control) deploy(r *call) (any, *refusal) {
	var d updatedata.Deployment
	texts := func(path string, raw json.RawMessage) *refusal {
		var s string
		problem := text(path, &s).take(raw, path)
		d.Devices = append(d.Devices, s)
		return problem
	}
	properties := value("properties", "an object of texts", &d.Properties, nil)
	id := field{name: "update", take: func(raw json.RawMessage, path string) *refusal {
		return readObject(raw, path, text("provider", &d.Update.Provider), text("name", &d.Update.Name),
			text("version", &d.Update.Version))
	}}
	problem := r.read(id, text("workflow", &d.WorkflowID), list("devices", texts), properties,
		whole("percent", 1, 100, &d.Percent), flagField("incompatible", &d.Incompatible),
		flagField("keepOffering", &d.KeepOffering))
	if problem != nil {
		return nil, problem
	}
	d, err := c.provider.updates.Deploy(d)
	return showDeployment(d, nil), updateRefusal("update", err)
}

func (c *control) retry(r *call) (any, *refusal) {
	return map[string]any{}, updateRefusal("workflow", c.provider.updates.Retry(r.PathValue("workflow")))
}

func (c *control) withdraw(r *call) (any, *refusal) {
	return map[string]any{}, updateRefusal("workflow", c.provider.updates.Withdraw(r.PathValue("workflow")))
}
