package updates

import (
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
	s.Records.Touch(tableDevices, fold(id))
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

// state records what the device states of itself.
func (d *device) state(a Agent) {
	d.data.SDKVersion, d.data.Profile, d.data.Properties = a.SDKVersion, a.Profile, maps.Clone(a.Properties)
	d.etag = etagOf(a)
}

// Reset forgets all deployments and devices.
func (s *Service) Reset() {
	s.mu.Lock()
	s.deployments = nil
	clear(s.devices)
	s.Records.Clear(tableDeployments, tableDevices)
	s.mu.Unlock()
	s.changed()
}
