package dps

import (
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
)

// Texts of a registration's state.
const (
	statusAssigning = "assigning"
	statusAssigned  = "assigned"
	statusFailed    = "failed"
	statusDisabled  = "disabled"

	initialAssignment  = "initialAssignment"
	deviceDataMigrated = "deviceDataMigrated"
	deviceDataReset    = "deviceDataReset"
)

// A choice is what an allocation has chosen.
type choice struct {
	hub           *hub.Hub
	payload       json.RawMessage
	tags, desired string
}

// assign decides a registration: it chooses the hub, creates or moves the device, and records the
// result. The caller holds rec.turn.
func (s *Service) assign(rec *record, c *Client, m *match, payload json.RawMessage,
	csr *x509.CertificateRequest) stateDocument {
	s.mu.Lock()
	reg := rec.data
	s.mu.Unlock()
	reg.ID, reg.EnrollmentID, reg.Updated = c.ID, m.data.ID, s.Net.Now()
	reg.ErrorCode, reg.ErrorMessage = 0, ""

	var chain [][]byte
	if m.data.Disabled {
		reg.Status = statusDisabled
	} else if bad := s.place(&reg, m, payload, csr, &chain); bad != nil {
		reg.Status, reg.ErrorCode, reg.ErrorMessage = statusFailed, bad.Code, bad.Text
	}
	s.mu.Lock()
	rec.data = reg
	rec.change = s.nextChangeLocked()
	s.touchRegistration(reg.ID)
	etag := etagOf(rec.change)
	s.mu.Unlock()
	d := s.stateOf(reg, m, chain)
	d.ETag = etag
	return d
}

// place chooses the hub and brings the device there.
func (s *Service) place(reg *dpsdata.Registration, m *match, payload json.RawMessage, csr *x509.CertificateRequest,
	chain *[][]byte) *Error {
	to, bad := s.choose(reg, m, payload)
	if bad != nil {
		return bad
	}
	auth, bad := s.authentication(m, csr, chain)
	// Decision: the documents ask for a certificate, and do not name the code without one.
	if bad == nil && to.hub.MQTTv5 && !auth.X509 {
		bad = Errorf(CodeBadRequest, "hub %s takes certificates only; register with a csr", to.hub.Host)
	}
	if bad != nil {
		return bad
	}
	from := s.linked(reg.Hub)
	old := identity.Identity{Device: reg.DeviceID}
	id := identity.Identity{Device: cmp.Or(m.data.DeviceID, reg.ID)}
	if reg.DeviceID != "" && m.data.DeviceID == "" && strings.EqualFold(reg.DeviceID, reg.ID) {
		id = old // the same device, with its id in the letter case of the first registration
	}
	substatus := initialAssignment
	var twin *document.View
	moved := reg.Hub != "" && !strings.EqualFold(reg.Hub, to.hub.Host)
	if moved {
		substatus = deviceDataReset
		if m.data.Reprovision != dpsdata.ReprovisionReset {
			substatus = deviceDataMigrated
			twin = twinAt(from, old)
		}
	} else if reg.Hub != "" {
		substatus = cmp.Or(reg.Substatus, initialAssignment)
	}
	added, err := to.hub.Provision(id, auth)
	if err != nil {
		return Errorf(codeServerError, "%v", err)
	}
	switch {
	case twin != nil:
		err = to.hub.AdoptTwin(id, *twin)
	case added || moved:
		err = firstTwin(to, id)
	}
	if err != nil {
		return Errorf(codeServerError, "twin: %v", err)
	}
	if from != nil && (moved || old != id) {
		from.RemoveDevice(old.Device) // it may have been removed there
	}
	if moved {
		reg.Moves++
	}
	reg.Status, reg.Substatus = statusAssigned, substatus
	reg.Hub, reg.DeviceID, reg.Payload = to.hub.Host, id.Device, to.payload
	return nil
}

// twinAt returns the twin of a device; nil if there is none.
func twinAt(h *hub.Hub, id identity.Identity) *document.View {
	if h == nil {
		return nil
	}
	t, err := h.TwinState(id)
	if err != nil {
		return nil
	}
	view := t.View()
	return &view
}

// firstTwin gives a new device the twin of its enrollment.
func firstTwin(to choice, id identity.Identity) error {
	tags, err := parseSection(to.tags)
	if err != nil {
		return err
	}
	desired, err := parseSection(to.desired)
	if err != nil || tags == nil && desired == nil {
		return err
	}
	_, err = to.hub.Update(id, hub.TwinUpdate{Tags: tags, Desired: desired})
	return err
}

func (s *Service) linked(name string) *hub.Hub {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.linkedLocked(name)
}

// candidates returns the linked hubs of an enrollment, in its order.
func (s *Service) candidates(e dpsdata.Enrollment) []*hub.Hub {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(e.Hubs) == 0 {
		return s.hubs
	}
	var all []*hub.Hub
	for _, name := range e.Hubs {
		if h := s.linkedLocked(name); h != nil {
			all = append(all, h)
		}
	}
	return all
}

// noHub says why an enrollment has no hub to choose from.
func (s *Service) noHub(e dpsdata.Enrollment) *Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(e.Hubs) == 0 {
		return Errorf(codeNoHub, "no hub to choose from: none is linked")
	}
	return Errorf(codeNoHub, "no hub to choose from: %s is for %s; linked are: %s", e, strings.Join(e.Hubs, ", "),
		names(s.hubs))
}

// choose applies the allocation of an enrollment.
func (s *Service) choose(reg *dpsdata.Registration, m *match, payload json.RawMessage) (choice, *Error) {
	chosen := choice{tags: m.data.Tags, desired: m.data.Desired}
	present := s.linked(reg.Hub)
	if m.data.Reprovision == dpsdata.ReprovisionNever && present != nil {
		chosen.hub, chosen.payload = present, reg.Payload
		return chosen, nil
	}
	all := s.candidates(m.data)
	if len(all) == 0 {
		return choice{}, s.noHub(m.data)
	}
	switch m.data.Allocation {
	case dpsdata.AllocationFixed:
		chosen.hub = all[0]
	case dpsdata.AllocationRoundRobin:
		for _, h := range all {
			if h == present {
				chosen.hub = h
				return chosen, nil
			}
		}
		s.mu.Lock()
		chosen.hub = all[m.enrollment.next%uint64(len(all))]
		m.enrollment.next++
		s.touchEnrollment(m.data.ID)
		s.mu.Unlock()
	case dpsdata.AllocationCustom:
		return s.ask(chosen, all, reg, m, payload)
	default:
		chosen.hub = hashed(all, reg.ID)
	}
	return chosen, nil
}

// hashed chooses the hub with the highest hash of id and name, so a hub that is added or removed
// moves no device between the others.
func hashed(all []*hub.Hub, id string) *hub.Hub {
	var best *hub.Hub
	highest := ""
	for _, h := range all {
		sum := sha256.Sum256([]byte(fold(id) + "\n" + fold(h.Host)))
		if text := string(sum[:]); best == nil || text > highest {
			best, highest = h, text
		}
	}
	return best
}

// ask lets the program choose.
func (s *Service) ask(chosen choice, all []*hub.Hub, reg *dpsdata.Registration, m *match,
	payload json.RawMessage) (choice, *Error) {
	request := dpsdata.AllocationRequest{
		EnrollmentID: m.data.ID, RegistrationID: reg.ID, Hub: reg.Hub, Payload: payload,
	}
	for _, h := range all {
		request.Hubs = append(request.Hubs, h.Host)
	}
	if m.data.Allocate == nil { // it was kept in a store, which holds no functions
		return choice{}, Errorf(codeAllocationFailed, "Custom allocation failed: its function is missing")
	}
	result, err := m.data.Allocate(request)
	if err != nil {
		return choice{}, Errorf(codeAllocationFailed, "Custom allocation failed: %v", err)
	}
	if chosen.hub = s.linked(result.Hub); chosen.hub == nil {
		return choice{}, Errorf(codeAllocationFailed, "Custom allocation failed: no hub named %q is linked", result.Hub)
	}
	if len(result.Payload) > 0 && !(utf8.Valid(result.Payload) && json.Valid(result.Payload)) {
		return choice{}, Errorf(codeAllocationFailed, "Custom allocation failed: the payload is not JSON in UTF-8")
	}
	chosen.payload = result.Payload
	chosen.tags, chosen.desired = cmp.Or(result.Tags, chosen.tags), cmp.Or(result.Desired, chosen.desired)
	return chosen, nil
}

// authentication returns how the device authenticates at its hub: with the keys that attested it,
// with the issued certificate, or with the certificate that attested it.
func (s *Service) authentication(m *match, csr *x509.CertificateRequest, chain *[][]byte) (hub.Registration, *Error) {
	leaf := m.leaf
	if csr != nil {
		if m.data.Issue == nil {
			return hub.Registration{}, Errorf(CodeBadRequest, "%s issues no certificates", m.data)
		}
		issued, err := m.data.Issue(csr)
		if err == nil && len(issued) > 0 {
			leaf, err = x509.ParseCertificate(issued[0])
		}
		if err != nil || len(issued) == 0 {
			return hub.Registration{}, Errorf(codeServerError, "certificate was not issued: %v", err)
		}
		*chain = issued
	}
	if leaf == nil {
		return hub.Registration{Keys: m.keys}, nil
	}
	digest, err := hub.ParseThumbprint(hub.Thumbprint(leaf))
	if err != nil {
		return hub.Registration{}, Errorf(codeServerError, "%v", err)
	}
	r := hub.Registration{X509: true, Thumbprints: []string{digest}}
	if *chain != nil {
		r.Issued = r.Thumbprints
	}
	return r, nil
}
