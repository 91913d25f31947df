package updates

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// An order is what the service has for a device.
type order uint8

const (
	orderNothing order = iota
	orderDeploy
	orderRetry
	orderCancel
)

// change returns the patch of desired properties that a device needs; nil for none.
func (c *Classic) change(id string, a *agentProperty, have serviceProperty) any {
	what, one := c.s.decide(id, have)
	switch what {
	case orderDeploy:
		if o := c.s.Offer(id, c.hub.Taker(id)); o != nil {
			return have.deploy(c.s.fit(id, o), a.knowsRootKeys())
		}
	case orderRetry:
		return have.retry(one.retry)
	case orderCancel:
		return have.cancel()
	case orderNothing:
	}
	return nil
}

// decide compares what a device is told with the deployments. The newest deployment for the device
// counts, unless the device has finished it.
func (s *Service) decide(id string, have serviceProperty) (order, *deployment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deviceLocked(id)
	told := d.workflow(have.Workflow.name())
	deployed := have.Workflow.Action == actionDeploy && told != nil
	for _, one := range slices.Backward(s.deployments) {
		if !one.selects(d.data.ID, d.data.Properties) {
			continue
		}
		if w := d.workflow(one.data.WorkflowID); have.Workflow.ID != one.data.WorkflowID {
			if w == nil || !w.Outcome().Terminal() || one.data.KeepOffering {
				return orderDeploy, one
			}
		} else if deployed && one.retry != "" && one.retry != have.Workflow.Retry && failed(told) {
			again := workflow{ID: one.data.WorkflowID, Retry: one.retry}
			d.data.Workflows = append(d.data.Workflows, updatedata.Workflow{
				ID: again.name(), Update: told.Update, Offers: 1, Offered: s.o.Now()})
			return orderRetry, one
		}
		break
	}
	if deployed && s.deploymentLocked(have.Workflow.ID) == nil && told.Outcome() != updatedata.OutcomeSucceeded {
		return orderCancel, nil
	}
	return orderNothing, nil
}

func failed(w *updatedata.Workflow) bool {
	return w.Outcome() == updatedata.OutcomeFailed || w.Outcome() == updatedata.OutcomeCanceled
}

// Retry makes the devices of hubs whose update failed, or was cancelled, try a deployment again.
func (s *Service) Retry(workflow string) error {
	s.mu.Lock()
	one := s.deploymentLocked(workflow)
	if one != nil {
		now := s.o.Now().UTC()
		for one.retry >= now.Format(retryLayout) { // the clock may stand still
			now = now.Add(100 * time.Nanosecond)
		}
		one.retry = now.Format(retryLayout)
		s.orders++
		s.Records.Touch(tableDeployments, workflow)
	}
	s.mu.Unlock()
	if one == nil {
		return fmt.Errorf("%w: workflow %s", ErrNotFound, workflow)
	}
	s.changed()
	return nil
}

// retryLayout is the form of the service's timestamps.
const retryLayout = "2006-01-02T15:04:05.0000000Z"

// fit returns an offer whose manifest fits into a twin: a larger one becomes a file.
func (s *Service) fit(id string, o *Offer) *Offer {
	if len(o.Manifest) <= maxTwinManifest {
		return o
	}
	var m manifest
	if json.Unmarshal(o.Manifest, &m) != nil {
		return o // it is to be wrong
	}
	f := manifestFile(m.ID, o.Manifest, s.o.Now())
	s.mu.Lock()
	s.files[f.id] = f
	url := s.fileURL + filePath(id, f)
	s.mu.Unlock()
	small := keep.MustJSON(map[string]any{
		"manifestVersion": m.Version, "updateId": m.ID, "compatibility": m.Compatibility, "createdDateTime": m.Created,
		"detachedManifestFileId": f.id, "files": map[string]*fileDocument{f.id: f.document()},
	})
	fitting := *o
	fitting.Manifest, fitting.Signature = small, s.Sign(small)
	fitting.URLs[f.id] = url
	return &fitting
}

// manifestFile returns the manifest of an update as a file.
func manifestFile(of updatedata.UpdateID, manifest []byte, created time.Time) *file {
	return newFile(of, "updatemanifest.json", detached(manifest), created)
}

// maxTwinManifest is the limit of a text in a twin.
const maxTwinManifest = 4 << 10
