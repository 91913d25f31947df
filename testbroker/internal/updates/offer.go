package updates

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/keep"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// A Taker returns a fault of a kind that hits the present request; nil if there is none. A nil
// Taker has none.
type Taker func(fault.Kind) *fault.Fault

func (t Taker) take(kind fault.Kind) *fault.Fault {
	if t == nil {
		return nil
	}
	return t(kind)
}

// An Offer is a deployment as a device gets it.
type Offer struct {
	WorkflowID string
	Manifest   []byte
	Signature  string
	URLs       map[string]string // by file id
	RootKeys   string            // the URL of the root key package
}

// Offer returns what a device is offered, subject to faults; nil for nothing. The newest deployment
// for the device counts.
func (s *Service) Offer(id string, take Taker) *Offer {
	d := s.deploymentFor(id)
	if d == nil {
		return nil
	}
	var wrong wrongOffer
	if f := take.take(fault.WrongOffer); f != nil {
		wrong = wrongOffers[f.Text]
	}
	if wrong.deployment != nil {
		d = wrong.deployment(s, d)
	}
	o, r := s.offer(id, d)
	if wrong.manifest != nil {
		m := new(manifest)
		if err := json.Unmarshal(o.Manifest, m); err != nil {
			panic(err) // publish wrote it
		}
		wrong.manifest(m)
		o.Manifest = keep.MustJSON(m)
	}
	signer := r.signer(sha256.Sum256(o.Manifest))
	if wrong.signer != nil {
		wrong.signer(&r, &signer)
	}
	o.Signature = s.sign(signer)
	if wrong.offer != nil {
		wrong.offer(o)
	}
	s.changed()
	return o
}

// deploymentFor returns what a device is to be offered; nil for nothing.
func (s *Service) deploymentFor(id string) *deployment {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deviceLocked(id)
	for _, one := range slices.Backward(s.deployments) {
		if !one.selects(id, d.data.Properties) {
			continue
		}
		w := d.workflow(one.data.WorkflowID)
		if w != nil && w.Outcome().Terminal() && !one.data.KeepOffering {
			return nil
		}
		return one
	}
	return nil
}

// offer records that a device is offered a deployment, and returns the offer without a signature
// and the keys for it.
func (s *Service) offer(id string, one *deployment) (*Offer, ring) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.deviceLocked(id)
	w := d.workflow(one.data.WorkflowID)
	if w == nil {
		d.data.Workflows = append(d.data.Workflows, updatedata.Workflow{
			ID: one.data.WorkflowID, Update: one.data.Update, Offered: s.o.Now()})
		w = &d.data.Workflows[len(d.data.Workflows)-1]
	}
	w.Offers++
	o := &Offer{WorkflowID: one.data.WorkflowID, Manifest: one.release.manifest, URLs: make(map[string]string),
		RootKeys: s.rootKeysURLLocked()}
	for _, f := range one.release.files {
		o.URLs[f.id] = s.fileURL + filePath(id, f)
	}
	return o, s.ring
}

func (s *Service) rootKeysURLLocked() string {
	return fmt.Sprintf("%s/updates/rootkeypackage-%d.json", s.fileURL, s.ring.Version)
}
