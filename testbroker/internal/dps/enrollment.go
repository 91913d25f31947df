package dps

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// maxGroups is how many groups a service has at most, as the real one.
const maxGroups = 100

// An enrollment is the service's entry of an enrollment. Guarded by Service.mu; data is replaced,
// never modified.
type enrollment struct {
	data             dpsdata.Enrollment
	next             uint64 // hubs chosen in turn so far
	changes          int
	created, updated time.Time
}

// Enroll adds an enrollment and returns it with its keys.
func (s *Service) Enroll(e dpsdata.Enrollment) (dpsdata.Enrollment, error) {
	if len(e.Certificates) == 0 && e.PrimaryKey == "" && e.SecondaryKey == "" {
		e.PrimaryKey, e.SecondaryKey = newKey(), newKey()
	}
	e = cloneEnrollment(e)
	if err := checkEnrollment(e); err != nil {
		return dpsdata.Enrollment{}, fmt.Errorf("testbroker: %s: %w", e, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.enrollments[fold(e.ID)] != nil {
		return dpsdata.Enrollment{}, fmt.Errorf("%w: %s", ErrEnrolled, e.ID)
	}
	now := s.Net.Now()
	entry := &enrollment{data: e, created: now, updated: now}
	if e.Group {
		if len(s.groups) >= maxGroups {
			return dpsdata.Enrollment{}, fmt.Errorf("testbroker: more than %d groups", maxGroups)
		}
		s.groups = append(s.groups, entry)
	}
	s.enrollments[fold(e.ID)] = entry
	return cloneEnrollment(e), nil
}

func newKey() string {
	var b [64]byte
	rand.Read(b[:]) // never fails
	return base64.StdEncoding.EncodeToString(b[:])
}

func cloneEnrollment(e dpsdata.Enrollment) dpsdata.Enrollment {
	e.Certificates, e.Hubs = slices.Clone(e.Certificates), slices.Clone(e.Hubs)
	return e
}

func checkEnrollment(e dpsdata.Enrollment) error {
	if err := CheckID(e.ID); err != nil {
		return err
	}
	keys := e.PrimaryKey != "" || e.SecondaryKey != ""
	for _, key := range []string{e.PrimaryKey, e.SecondaryKey} {
		if !keys {
			break
		}
		if err := hub.CheckKeyText(key); err != nil {
			return err
		}
	}
	switch {
	case keys == (len(e.Certificates) > 0):
		return errors.New("want either two keys or certificates")
	case e.Group && e.DeviceID != "":
		return errors.New("a group has no device id")
	case e.Allocation > dpsdata.Custom:
		return fmt.Errorf("unknown %s", e.Allocation)
	case e.Reprovision > dpsdata.Never:
		return fmt.Errorf("unknown %s", e.Reprovision)
	case (e.Allocation == dpsdata.Custom) != (e.Allocate != nil):
		return errors.New("Allocate is needed for the custom allocation, and only for it")
	}
	for _, cert := range e.Certificates {
		if e.Group && !cert.IsCA {
			return errors.New("certificate of a group is not that of an authority")
		}
	}
	if e.DeviceID != "" {
		if err := hub.CheckID("device", e.DeviceID); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{"tags": e.Tags, "desired properties": e.Desired} {
		if _, err := parseSection(text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func parseSection(text string) (hub.Tree, error) {
	if text == "" {
		return nil, nil
	}
	return hub.ParseTree([]byte(text))
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

func (e *enrollment) etag() string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%08x", e.changes))
}

// Replace replaces an enrollment if it has the ETag, which may be "*". Keys that a back end leaves
// out stay, and so do settings that it cannot see.
func (s *Service) Replace(e dpsdata.Enrollment, etag string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.enrollments[fold(e.ID)]
	switch {
	case entry == nil || entry.data.Group != e.Group:
		return fmt.Errorf("%w: %s", ErrNotEnrolled, e.ID)
	case etag != "*" && etag != entry.etag():
		return Errorf(CodePrecondition, "the etag of %s is %s", e.ID, entry.etag())
	}
	if len(e.Certificates) == 0 && e.PrimaryKey == "" && e.SecondaryKey == "" {
		e.PrimaryKey, e.SecondaryKey = entry.data.PrimaryKey, entry.data.SecondaryKey
	}
	e.ID, e.Issue, e.ConnectionProfile = entry.data.ID, entry.data.Issue, entry.data.ConnectionProfile
	switch {
	case e.Allocation == dpsdata.Custom:
		e.Allocate = entry.data.Allocate
	case e.Allocation == dpsdata.Hashed && entry.data.Allocation == dpsdata.RoundRobin: // which back ends see as hashed
		e.Allocation = dpsdata.RoundRobin
	}
	if err := checkEnrollment(e); err != nil {
		return err
	}
	entry.data, entry.updated = cloneEnrollment(e), s.Net.Now()
	entry.changes++
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
		return fmt.Errorf("testbroker: %s: %w", e, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	entry := s.enrollments[fold(id)]
	if entry == nil {
		return fmt.Errorf("%w: %s", ErrNotEnrolled, id)
	}
	entry.data, entry.updated = e, s.Net.Now()
	entry.changes++
	return nil
}

// Delete removes an enrollment and the records of its registrations. The devices stay at their
// hubs.
func (s *Service) Delete(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.enrollments[fold(id)]
	if e == nil {
		return fmt.Errorf("%w: %s", ErrNotEnrolled, id)
	}
	delete(s.enrollments, fold(id))
	s.groups = slices.DeleteFunc(slices.Clone(s.groups), func(g *enrollment) bool { return g == e })
	for key, r := range s.records {
		if fold(r.data.EnrollmentID) == fold(id) {
			delete(s.records, key)
		}
	}
	return nil
}
