package updates

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// maxWorkflowID is the size limit of a workflow id in characters.
const maxWorkflowID = 128

// A deployment offers a release to devices.
type deployment struct {
	data    updatedata.Deployment
	release *release
	order   uint64 // grows from deployment to deployment
	retry   string // the timestamp of the last retry at devices of hubs; empty = none
}

// Deploy offers an update to devices.
func (s *Service) Deploy(d updatedata.Deployment) (updatedata.Deployment, error) {
	if d.WorkflowID == "" {
		d.WorkflowID = newUUID()
	}
	if n := len(d.WorkflowID); n > maxWorkflowID {
		return d, fmt.Errorf("testbroker: deploy: workflow id of %d characters, at most %d are allowed", n, maxWorkflowID)
	}
	if d.Percent < 0 || d.Percent > 100 {
		return d, fmt.Errorf("testbroker: deploy: %d percent; give 1 to 100", d.Percent)
	}
	d.Devices, d.Properties = slices.Clone(d.Devices), maps.Clone(d.Properties)
	err := s.deploy(d, "")
	s.changed()
	return d, err
}

func (s *Service) deploy(d updatedata.Deployment, retry string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.releases[d.Update]
	switch {
	case r == nil:
		return fmt.Errorf("%w: deploy: update %s; publish it first", ErrNotFound, d.Update)
	case s.deploymentLocked(d.WorkflowID) != nil:
		return fmt.Errorf("%w: deploy: workflow %s; give another id", ErrExists, d.WorkflowID)
	}
	s.addLocked(d, r).retry = retry
	return nil
}

// addLocked adds a deployment as the newest.
func (s *Service) addLocked(d updatedata.Deployment, r *release) *deployment {
	s.deployed++
	s.orders++
	one := &deployment{data: d, release: r, order: s.deployed}
	s.deployments = append(s.deployments, one)
	s.Records.Touch(tableDeployments, d.WorkflowID)
	return one
}

// withdrawLocked removes deployments.
func (s *Service) withdrawLocked(gone func(*deployment) bool) {
	s.orders++
	s.deployments = slices.DeleteFunc(s.deployments, func(d *deployment) bool {
		if gone(d) {
			s.Records.Touch(tableDeployments, d.data.WorkflowID)
		}
		return gone(d)
	})
}

// redeploy replaces a deployment by one with another workflow id.
func (s *Service) redeploy(d *deployment) *deployment {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := d.data
	again.WorkflowID = newUUID()
	s.withdrawLocked(func(e *deployment) bool { return e == d })
	return s.addLocked(again, d.release)
}

// Withdraw ends a deployment: no device is offered it any more.
func (s *Service) Withdraw(workflow string) error {
	s.mu.Lock()
	gone := s.deploymentLocked(workflow)
	s.withdrawLocked(func(d *deployment) bool { return d == gone })
	s.mu.Unlock()
	s.changed()
	if gone == nil {
		return fmt.Errorf("%w: workflow %s", ErrNotFound, workflow)
	}
	return nil
}

// Deployments returns the deployments that are offered, the oldest first.
func (s *Service) Deployments() []updatedata.Deployment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []updatedata.Deployment
	for _, d := range s.deployments {
		all = append(all, d.data)
	}
	return all
}

func (s *Service) deploymentLocked(workflow string) *deployment {
	i := slices.IndexFunc(s.deployments, func(d *deployment) bool { return d.data.WorkflowID == workflow })
	if i < 0 {
		return nil
	}
	return s.deployments[i]
}

// selects reports whether the deployment is for a device.
func (d *deployment) selects(id string, properties map[string]string) bool {
	of := &d.data
	named := slices.ContainsFunc(of.Devices, func(name string) bool { return strings.EqualFold(name, id) })
	compatible := slices.ContainsFunc(d.release.update.Compatibility, func(set map[string]string) bool {
		return fits(set, properties)
	})
	return (named || len(of.Devices) == 0) && (compatible || of.Incompatible) && fits(of.Properties, properties) &&
		(of.Percent == 0 || share(id, of.Update) < of.Percent)
}

// fits reports whether a device has all properties of a set.
func fits(set, properties map[string]string) bool {
	for name, want := range set {
		has := false
		for other, value := range properties {
			has = has || strings.EqualFold(name, other) && strings.EqualFold(want, value)
		}
		if !has {
			return false
		}
	}
	return true
}

// share returns the place of a device among all devices for an update, from 0 to 99.
func share(id string, of updatedata.UpdateID) int {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %s", of, fold(id))
	return int(binary.BigEndian.Uint16(h.Sum(nil)[6:]) % 100)
}

// fold returns the form of an id in which ids are compared.
func fold(id string) string { return strings.ToLower(id) }

func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
