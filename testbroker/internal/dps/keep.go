package dps

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"slices"
	"time"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
)

// The tables of the service, by folded ids.
const (
	tableEnrollments   = "enrollments"
	tableRegistrations = "registrations"
)

// An enrollmentRecord is an enrollment. Functions are not kept: after a restart a custom allocation
// fails, and no certificates are issued, until the program changes the enrollment.
type enrollmentRecord struct {
	dpsdata.Enrollment
	Certificates     [][]byte  `json:",omitempty"` // DER, in place of the parsed ones
	Allocate, Issue  *struct{} `json:",omitempty"` // always nil, in place of the functions
	Next             uint64
	Changes          int
	Created, Updated time.Time
}

// A registrationRecord is a registration with its operations.
type registrationRecord struct {
	Data       dpsdata.Registration
	Changes    int
	Operations []operationRecord
}

// An operationRecord is an operation. After a restart it is told at the next poll.
type operationRecord struct {
	ID    string
	State stateDocument
}

func (s *Service) addTables() {
	s.Net.Records.Add(tableEnrollments, s.enrollmentRecord, s.restoreEnrollment)
	s.Net.Records.Add(tableRegistrations, s.registrationRecord, s.restoreRegistration)
}

// touchEnrollment and touchRegistration mark a record as changed. The caller may hold mu.
func (s *Service) touchEnrollment(id string)   { s.Net.Records.Touch(tableEnrollments, fold(id)) }
func (s *Service) touchRegistration(id string) { s.Net.Records.Touch(tableRegistrations, fold(id)) }

func (s *Service) enrollmentRecord(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.enrollments[key]
	if e == nil {
		return nil
	}
	r := enrollmentRecord{Enrollment: e.data, Next: e.next, Changes: e.change, Created: e.created, Updated: e.updated}
	for _, cert := range e.data.Certificates {
		r.Certificates = append(r.Certificates, cert.Raw)
	}
	return document.JSON(r)
}

func (s *Service) restoreEnrollment(key string, record []byte) error {
	var r enrollmentRecord
	if err := json.Unmarshal(record, &r); err != nil {
		return err
	}
	e := &enrollment{data: r.Enrollment, next: r.Next, change: r.Changes, created: r.Created, updated: r.Updated}
	for _, raw := range r.Certificates {
		cert, err := x509.ParseCertificate(raw)
		if err != nil {
			return err
		}
		e.data.Certificates = append(e.data.Certificates, cert)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.enrollments[key], s.changes = e, max(s.changes, e.change)
	if e.data.Group {
		s.groups = append(s.groups, e)
		slices.SortStableFunc(s.groups, func(a, b *enrollment) int {
			return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.data.ID, b.data.ID))
		})
	}
	return nil
}

func (s *Service) registrationRecord(key string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[key]
	if rec == nil || rec.data.Status == "" {
		return nil
	}
	r := registrationRecord{Data: rec.data, Changes: rec.change}
	for _, o := range rec.operations {
		r.Operations = append(r.Operations, operationRecord{o.id, o.state})
	}
	return document.JSON(r)
}

func (s *Service) restoreRegistration(key string, content []byte) error {
	var r registrationRecord
	if err := json.Unmarshal(content, &r); err != nil {
		return err
	}
	rec := &record{turn: make(chan struct{}, 1), data: r.Data, change: r.Changes}
	for _, o := range r.Operations {
		rec.operations = append(rec.operations, &operation{id: o.ID, state: o.State})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[key], s.changes = rec, max(s.changes, rec.change)
	return nil
}
