package dps

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/tpm2"
)

// The forms of names of a device registry.
var (
	namespaceForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,62}[a-z0-9]$`)
	policyForm    = regexp.MustCompile(`^[0-9a-zA-Z][a-zA-Z0-9-]{2,62}$`)
)

// maxGroups is how many groups a service has at most, as the real one.
const maxGroups = 100

// maxTypes is how many device types an enrollment has at most.
const maxTypes = 1

// An enrollment is the service's entry of an enrollment. Guarded by Service.mu; data is replaced,
// never modified.
type enrollment struct {
	data             dpsdata.Enrollment
	next             uint64 // hubs chosen in turn so far
	change           int    // the latest of Service.changes
	created, updated time.Time
}

// Enroll adds an enrollment and returns it with its keys.
func (s *Service) Enroll(e dpsdata.Enrollment) (dpsdata.Enrollment, error) {
	if len(e.Certificates) == 0 && e.PrimaryKey == "" && e.SecondaryKey == "" {
		e.PrimaryKey, e.SecondaryKey = s.newKeys(e.ID)
	}
	e = cloneEnrollment(e)
	if err := checkEnrollment(e); err != nil {
		return dpsdata.Enrollment{}, fmt.Errorf("testbroker: enroll %s: %w", e, err)
	}
	defer s.Net.Records.Saved()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.enrollments[fold(e.ID)] != nil {
		return dpsdata.Enrollment{}, fmt.Errorf("%w: %s", ErrEnrolled, e.ID)
	}
	now := s.Net.Now()
	entry := &enrollment{data: e, change: s.nextChangeLocked(), created: now, updated: now}
	if e.Group {
		if len(s.groups) >= maxGroups {
			return dpsdata.Enrollment{}, fmt.Errorf("testbroker: enroll %s: there are %d groups already; delete one", e,
				maxGroups)
		}
		s.groups = append(s.groups, entry)
	}
	s.enrollments[fold(e.ID)] = entry
	s.touchEnrollment(e.ID)
	return cloneEnrollment(e), nil
}

// newKeys returns keys as long as those of the real service, unless a seed makes shorter ones.
func (s *Service) newKeys(id string) (primary, secondary string) {
	if s.Net.Seed != 0 {
		keys := s.Net.NewKeys("enrollment " + fold(id))
		return keys.Primary, keys.Secondary
	}
	var b [128]byte
	rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:64]), base64.StdEncoding.EncodeToString(b[64:])
}

func cloneEnrollment(e dpsdata.Enrollment) dpsdata.Enrollment {
	e.Certificates, e.Hubs = slices.Clone(e.Certificates), slices.Clone(e.Hubs)
	e.EndorsementKey, e.DeviceTypeRefs = slices.Clone(e.EndorsementKey), slices.Clone(e.DeviceTypeRefs)
	return e
}

// A FieldError says which field of an enrollment cannot work, and what to give instead.
type FieldError struct{ Field, Problem, Fix string }

// Error names the field as dpsdata does.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem + "; " + e.Fix }

func checkEnrollment(e dpsdata.Enrollment) error {
	bad := func(field, problem, fix string) error { return &FieldError{field, problem, fix} }
	if err := CheckID(e.ID); err != nil {
		return bad("ID", err.Error(), "give letters, digits and -._: with a letter, a digit or a dash at the end")
	}
	if err := checkAttestation(e); err != nil {
		return err
	}
	if e.DeviceID != "" {
		if e.Group {
			return bad("DeviceID", "a group has none, its devices are called as they register", "leave it empty")
		}
		if err := identity.CheckID("device", e.DeviceID); err != nil {
			return bad("DeviceID", err.Error(), "give another id, or none for the registration id")
		}
	}
	for i, name := range e.Hubs {
		if name == "" {
			return bad(fmt.Sprintf("Hubs[%d]", i), "it is empty",
				"give the name of a hub, or no list at all for all linked hubs")
		}
	}
	switch {
	case e.Allocation > dpsdata.AllocationCustom:
		return bad("Allocation", "unknown "+e.Allocation.String(), "give one of dpsdata's, such as AllocationHashed")
	case e.Reprovision > dpsdata.ReprovisionNever:
		return bad("Reprovision", "unknown "+e.Reprovision.String(), "give one of dpsdata's, such as ReprovisionMigrate")
	case e.Allocation == dpsdata.AllocationCustom && e.Allocate == nil:
		return bad("Allocate", "it is missing", "give the function that the custom allocation calls")
	case e.Allocation != dpsdata.AllocationCustom && e.Allocate != nil:
		return bad("Allocate", "nothing calls it with the allocation "+e.Allocation.String(),
			"set Allocation to AllocationCustom")
	}
	for _, name := range []struct {
		field, text string
		form        *regexp.Regexp
		fix         string
	}{
		{"CertificatePolicy.Namespace", e.CertificatePolicy.Namespace, namespaceForm,
			"give 3 to 64 letters in lower case, digits and dashes within"},
		{"CertificatePolicy.Authority", e.CertificatePolicy.Authority, policyForm,
			"give 3 to 63 letters and digits, and dashes after the first"},
		{"CertificatePolicy.Name", e.CertificatePolicy.Name, policyForm,
			"give 3 to 63 letters and digits, and dashes after the first"},
	} {
		if name.text != "" && !name.form.MatchString(name.text) {
			return bad(name.field, fmt.Sprintf("%.100q has another form", name.text), name.fix)
		}
	}
	if n := len(e.DeviceTypeRefs); n > maxTypes {
		return bad("DeviceTypeRefs", fmt.Sprintf("there are %d", n), "give one, or none")
	}
	for _, section := range []struct{ field, text string }{{"Tags", e.Tags}, {"Desired", e.Desired}} {
		if _, err := parseSection(section.text); err != nil {
			return bad(section.field, err.Error(), "give an object of JSON as a twin can hold it, or nothing")
		}
	}
	return nil
}

// checkAttestation checks that an enrollment has exactly one kind of proof, and a complete one.
func checkAttestation(e dpsdata.Enrollment) error {
	if e.EndorsementKey != nil {
		const field = "EndorsementKey"
		switch _, err := tpm2.ParseEndorsementKey(e.EndorsementKey); {
		case e.Group:
			return &FieldError{field, "a group has none", "enroll each device"}
		case len(e.Certificates) > 0:
			return &FieldError{field, "there are certificates as well", "give one of them"}
		case err != nil:
			return &FieldError{field, err.Error(), "give the TPM2B_PUBLIC of the TPM's endorsement key"}
		}
	}
	const oneKind = "give either both keys or certificates"
	keys := []struct{ field, text string }{{"PrimaryKey", e.PrimaryKey}, {"SecondaryKey", e.SecondaryKey}}
	if len(e.Certificates) > 0 {
		for _, key := range keys {
			if key.text != "" {
				return &FieldError{key.field, "there are certificates as well", oneKind}
			}
		}
	}
	for i, cert := range e.Certificates {
		field := fmt.Sprintf("Certificates[%d]", i)
		switch {
		case cert == nil:
			return &FieldError{field, "it is nil", "give a parsed certificate"}
		case e.Group && !cert.IsCA:
			return &FieldError{field, "it is not that of an authority", "give a group the certificate that signs its devices'"}
		}
	}
	if len(e.Certificates) > 0 {
		return nil
	}
	for _, key := range keys {
		if key.text == "" {
			return &FieldError{key.field, "it is missing",
				"give both keys, or leave out both when you enroll, and the service makes them"}
		}
		if err := hub.CheckKeyText(key.text); err != nil {
			return &FieldError{key.field, err.Error(), "give such a key, or leave out both when you enroll, and the service " +
				"makes them"}
		}
	}
	return nil
}

func parseSection(text string) (document.Tree, error) {
	if text == "" {
		return nil, nil
	}
	return document.Parse([]byte(text))
}

// Enrollment returns an enrollment.
func (s *Service) Enrollment(id string) (dpsdata.Enrollment, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.enrollments[fold(id)]
	if e == nil {
		return dpsdata.Enrollment{}, fmt.Errorf("%w: %s", ErrNotEnrolled, id)
	}
	return cloneEnrollment(e.data), nil
}

// A Stored is an enrollment with what back ends see of its history.
type Stored struct {
	dpsdata.Enrollment
	ETag             string
	Created, Updated time.Time
}

// Stored returns an enrollment as back ends see it.
func (s *Service) Stored(id string) (Stored, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.enrollments[fold(id)]
	if e == nil {
		return Stored{}, fmt.Errorf("%w: %s", ErrNotEnrolled, id)
	}
	return Stored{cloneEnrollment(e.data), e.etag(), e.created, e.updated}, nil
}

func (e *enrollment) etag() string { return etagOf(e.change) }

func (s *Service) nextChangeLocked() int {
	s.changes++
	return s.changes
}

// etagOf returns the ETag of an enrollment or registration after a change.
func etagOf(change int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%08x", change))
}

// Replace replaces an enrollment if it has the ETag, which may be "*". Keys that a back end leaves
// out stay, and so do settings that it cannot see in its version of the API.
func (s *Service) Replace(e dpsdata.Enrollment, etag string, v Version) error {
	defer s.Net.Records.Saved()
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.enrollments[fold(e.ID)]
	switch {
	case entry == nil || entry.data.Group != e.Group:
		return fmt.Errorf("%w: %s", ErrNotEnrolled, e.ID)
	case etag != "*" && etag != entry.etag():
		return Errorf(CodePrecondition, "etag %q: the etag of %s is %q; read it again", etag, e.ID, entry.etag())
	}
	if len(e.Certificates) == 0 && e.PrimaryKey == "" && e.SecondaryKey == "" {
		e.PrimaryKey, e.SecondaryKey = entry.data.PrimaryKey, entry.data.SecondaryKey
	}
	e.ID, e.Issue = entry.data.ID, entry.data.Issue
	if !v.Policy {
		e.CertificatePolicy = entry.data.CertificatePolicy
	}
	if !v.Types {
		e.DeviceTypeRefs = entry.data.DeviceTypeRefs
	}
	switch {
	case e.Allocation == dpsdata.AllocationCustom:
		e.Allocate = entry.data.Allocate
	case e.Allocation == dpsdata.AllocationHashed && entry.data.Allocation == dpsdata.AllocationRoundRobin:
		// which back ends see as hashed
		e.Allocation = dpsdata.AllocationRoundRobin
	}
	if err := checkEnrollment(e); err != nil {
		return err
	}
	entry.data, entry.updated = cloneEnrollment(e), s.Net.Now()
	entry.change = s.nextChangeLocked()
	s.touchEnrollment(e.ID)
	return nil
}

// Enrollments returns all enrollments, sorted by id.
func (s *Service) Enrollments() []dpsdata.Enrollment {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]dpsdata.Enrollment, 0, len(s.enrollments))
	for _, e := range s.enrollments {
		all = append(all, cloneEnrollment(e.data))
	}
	slices.SortFunc(all, func(a, b dpsdata.Enrollment) int { return strings.Compare(fold(a.ID), fold(b.ID)) })
	return all
}

// Change replaces an enrollment by what change makes of it. The id and the kind stay. change is
// called with no lock held; of concurrent changes the last one wins.
func (s *Service) Change(id string, change func(*dpsdata.Enrollment)) error {
	e, err := s.Enrollment(id)
	if err != nil {
		return err
	}
	was := e
	change(&e)
	e.ID, e.Group = was.ID, was.Group
	e = cloneEnrollment(e)
	if err := checkEnrollment(e); err != nil {
		return fmt.Errorf("testbroker: change %s: %w", e, err)
	}
	defer s.Net.Records.Saved()
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.enrollments[fold(id)]
	if entry == nil {
		return fmt.Errorf("%w: %s", ErrNotEnrolled, id)
	}
	entry.data, entry.updated = e, s.Net.Now()
	entry.change = s.nextChangeLocked()
	s.touchEnrollment(e.ID)
	return nil
}

// Delete removes an enrollment and the records of its registrations. The devices stay at their
// hubs.
func (s *Service) Delete(id string) error {
	defer s.Net.Records.Saved()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.enrollments[fold(id)]
	if e == nil {
		return fmt.Errorf("%w: %s", ErrNotEnrolled, id)
	}
	delete(s.enrollments, fold(id))
	s.touchEnrollment(id)
	s.groups = slices.DeleteFunc(slices.Clone(s.groups), func(g *enrollment) bool { return g == e })
	for key, r := range s.records {
		if fold(r.data.EnrollmentID) == fold(id) {
			delete(s.records, key)
			s.touchRegistration(key)
		}
	}
	return nil
}
