package updates

import (
	"fmt"
	"maps"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// An Agent is what a device states of itself.
type Agent struct {
	SDKVersion string
	Profile    int
	Properties map[string]string
}

// A device is the service's record of a device. Guarded by Service.mu.
type device struct {
	data updatedata.Device
	etag string // of the agent's information; empty before the first
}

// deviceLocked returns the record of a device, and makes it if there is none.
func (s *Service) deviceLocked(id string) *device {
	d := s.devices[fold(id)]
	if d == nil {
		d = &device{data: updatedata.Device{ID: id}}
		s.devices[fold(id)] = d
	}
	d.data.Seen = s.o.Now()
	return d
}

// Device returns what the service knows of a device. An unknown device has no workflows.
func (s *Service) Device(id string) updatedata.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[fold(id)]
	if d == nil {
		return updatedata.Device{ID: id}
	}
	return d.copy()
}

// Devices returns all devices that the service knows, sorted by id.
func (s *Service) Devices() []updatedata.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []updatedata.Device
	for _, id := range slices.Sorted(maps.Keys(s.devices)) {
		all = append(all, s.devices[id].copy())
	}
	return all
}

func (d *device) copy() updatedata.Device {
	data := d.data
	data.Properties = maps.Clone(data.Properties)
	data.Workflows = slices.Clone(data.Workflows)
	return data
}

// workflow returns the state of a deployment at the device; nil if the device was never offered it.
func (d *device) workflow(id string) *updatedata.Workflow {
	i := slices.IndexFunc(d.data.Workflows, func(w updatedata.Workflow) bool { return w.ID == id })
	if i < 0 {
		return nil
	}
	return &d.data.Workflows[i]
}

// Seen records what a device states of itself, and the update that it has.
func (s *Service) Seen(id string, a Agent, installed updatedata.UpdateID) {
	s.mu.Lock()
	s.deviceLocked(id).state(a, installed)
	s.mu.Unlock()
	s.changed()
}

func (d *device) state(a Agent, installed updatedata.UpdateID) {
	d.data.SDKVersion, d.data.Profile, d.data.Properties = a.SDKVersion, a.Profile, maps.Clone(a.Properties)
	d.data.Installed = installed
	d.etag = etagOf(a)
}

// An Offer is a deployment as a device gets it.
type Offer struct {
	WorkflowID string
	Manifest   []byte
	Signature  string
	URLs       map[string]string // by file id
	RootKeys   string            // the URL of the root key package
}

// Offer returns what a device is offered; nil for nothing. The newest deployment for the device
// counts. The device is recorded as offered.
func (s *Service) Offer(id string) *Offer {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deviceLocked(id)
	for _, one := range slices.Backward(s.deployments) {
		if !one.selects(d.data.ID, d.data.Properties) {
			continue
		}
		w := d.workflow(one.data.WorkflowID)
		if w != nil && w.Outcome().Terminal() && !one.data.KeepOffering {
			return nil
		}
		if w == nil {
			d.data.Workflows = append(d.data.Workflows, updatedata.Workflow{
				ID: one.data.WorkflowID, Update: one.data.Update, Offered: s.o.Now()})
			w = d.workflow(one.data.WorkflowID)
		}
		w.Offers++
		return s.offerLocked(d, one)
	}
	return nil
}

func (s *Service) offerLocked(d *device, one *deployment) *Offer {
	o := &Offer{WorkflowID: one.data.WorkflowID, Manifest: one.release.manifest, URLs: make(map[string]string),
		RootKeys: s.rootKeysURLLocked()}
	for _, f := range one.release.files {
		o.URLs[f.id] = fmt.Sprintf("%s/updates/files/%s/%s/%s", s.fileURL, d.data.ID, f.id, f.name)
	}
	return o
}

func (s *Service) rootKeysURLLocked() string {
	return fmt.Sprintf("%s/updates/rootkeypackage-%d.json", s.fileURL, s.ring.Version)
}
