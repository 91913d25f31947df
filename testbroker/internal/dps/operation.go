package dps

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/event"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// maxOperations is how many operations of one registration the service knows, the newest.
const maxOperations = 8

// A record is the service's entry of a registration.
type record struct {
	// turn is held while the device is assigned, so that registrations of one device follow each
	// other. It is a channel because its holder calls hubs.
	turn chan struct{}

	// Guarded by Service.mu.
	data       dpsdata.Registration
	change     int
	operations []*operation
}

// An operation is one registration in progress, or finished. The service decides at once, and tells
// the client later.
type operation struct {
	id    string
	polls int       // polls that are still answered with "assigning"
	until time.Time // until then polls are answered with "assigning"
	state stateDocument
}

// An Answer is the service's answer to a request.
type Answer struct {
	Status     int
	Body       []byte
	RetryAfter string // empty = none
	Err        *Error // nil unless the request was refused
	Delivery

	state *stateDocument // nil unless the answer has one
	about string         // the workflow that the answer offers, or the reported outcome; empty = none
}

// Refuse returns the answer to a refused request, and adds the request to the log. It is for
// requests that a front refuses.
func (s *Service) Refuse(c *Client, conn *hub.Conn, r dpsdata.Request, bad *Error) Answer {
	if r.Operation >= dpsdata.OperationCheckOnboarding {
		if _, wrong := FindVersion(c.APIVersion); wrong != nil {
			bad = refusedUpdate(updatedata.CodeUnsupportedVersion, "%s", wrong.Text)
		}
	}
	return (&call{s, c, conn, r.Operation}).refuse(r, bad)
}

func (k *call) refuse(r dpsdata.Request, bad *Error) Answer {
	s, c := k.s, k.c
	a := Answer{Status: bad.Status(), Body: s.ErrorBody(bad), Err: bad}
	if bad.RetryAfter > 0 {
		a.RetryAfter = strconv.Itoa(hub.Seconds(bad.RetryAfter))
	}
	if f := k.take(fault.WrongRetryAfter); f != nil {
		a.RetryAfter = f.Text
	}
	r.ErrorCode = bad.Code
	s.log(c, r, a)
	return a
}

// log adds a request to the log and reports it.
func (s *Service) log(c *Client, r dpsdata.Request, a Answer) {
	r.RegistrationID, r.APIVersion, r.Protocol, r.Connection = c.ID, c.APIVersion, c.Protocol, c.Connection
	s.Net.Records.Saved() // before the client learns of it
	r.Received, r.Status, r.RetryAfter = s.Net.Now(), a.Status, a.RetryAfter
	s.note(r)
	e := event.Event{
		Kind: event.RegistrationAnswered, Connection: c.Connection, DeviceID: c.ID, Status: a.Status,
		Detail: r.Operation.String(), Protocol: c.Protocol,
	}
	if r.Operation >= dpsdata.OperationCheckOnboarding {
		e.Kind, e.Name = event.UpdateAnswered, a.about
	}
	switch {
	case a.Err != nil:
		e.Err = a.Err
	case a.state == nil:
	case a.state.Status == statusAssigned:
		e.Name = a.state.AssignedHub
	case a.state.Status == statusFailed:
		e.Err = Errorf(a.state.ErrorCode, "%s", a.state.ErrorMessage)
	default:
		e.Err = errors.New(a.state.Status)
	}
	s.Net.Event(e, nil)
}

// register starts a registration. The client may lack valid credentials.
func (k *call) register(body []byte) Answer {
	s, c := k.s, k.c
	r := dpsdata.Request{Operation: dpsdata.OperationRegister, Body: slices.Clone(body)}
	if s.Unproven(c, dpsdata.OperationRegister) {
		return k.challenge(r)
	}
	m, bad := s.match(c)
	if bad != nil {
		return k.refuse(r, bad)
	}
	csr, bad := readBody(c, &r)
	if bad == nil && m.data.EndorsementKey != nil && c.TPM != nil {
		if c.Protocol == hubdata.HTTP && k.take(fault.RepeatChallenge) != nil {
			return k.challenge(r)
		}
		m.activation, bad = c.TPM.wrap(m.data)
	}
	if bad != nil {
		return k.refuse(r, bad)
	}
	if wait := s.overLimit(); wait > 0 {
		bad := Errorf(codeThrottled, "more than %d registrations in a minute", s.o.RegistrationsPerMinute)
		bad.RetryAfter = wait
		return k.refuse(r, bad)
	}
	rec := s.record(c, m)
	o := s.begin(rec, c, m, r.Payload, csr)
	r.OperationID = o.id
	a := k.present(o, o.polls == 0 && s.o.Assigning <= 0)
	s.log(c, r, a)
	return a
}

// begin waits for the turn of the registration, assigns the device and returns the operation.
func (s *Service) begin(rec *record, c *Client, m *match, payload json.RawMessage,
	csr *x509.CertificateRequest) *operation {
	rec.turn <- struct{}{}
	defer func() { <-rec.turn }() // also when a function of the enrollment panics or ends its goroutine
	return s.newOperation(rec, c, s.assign(rec, c, m, payload, csr))
}

// record returns the record of a client's registration, and makes it if there is none.
func (s *Service) record(c *Client, m *match) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[fold(c.ID)]
	if rec == nil {
		rec = &record{turn: make(chan struct{}, 1)}
		rec.data = dpsdata.Registration{ID: c.ID, EnrollmentID: m.data.ID, Created: s.Net.Now()}
		s.records[fold(c.ID)] = rec
	}
	return rec
}

func (s *Service) newOperation(rec *record, c *Client, state stateDocument) *operation {
	var random [16]byte
	rand.Read(random[:]) // never fails
	s.mu.Lock()
	defer s.mu.Unlock()
	s.operations++
	text := hex.EncodeToString(random[:])
	o := &operation{
		id:    fmt.Sprintf("5.%016x.%s-%s-%s-%s-%s", s.operations, text[:8], text[8:12], text[12:16], text[16:20], text[20:]),
		polls: s.o.Polls, until: time.Now().Add(s.o.Assigning), state: state,
	}
	rec.operations = append(rec.operations, o)
	if len(rec.operations) > maxOperations {
		rec.operations = rec.operations[1:]
	}
	s.touchRegistration(c.ID)
	return o
}

// poll returns the state of an operation.
func (k *call) poll(id string) Answer {
	s, c := k.s, k.c
	r := dpsdata.Request{Operation: dpsdata.OperationPoll, OperationID: id}
	if _, bad := s.match(c); bad != nil {
		return k.refuse(r, bad)
	}
	o, through := s.count(c, id)
	if o == nil {
		return k.refuse(r, Errorf(codeNoOperation, "operation %q of %q is unknown", id, c.ID))
	}
	a := k.present(o, through)
	s.log(c, r, a)
	return a
}

// count counts a poll of an operation, and reports whether the result may be told.
func (s *Service) count(c *Client, id string) (o *operation, through bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[fold(c.ID)]
	if rec == nil {
		return nil, false
	}
	i := slices.IndexFunc(rec.operations, func(o *operation) bool { return o.id == id })
	if i < 0 {
		return nil, false
	}
	o = rec.operations[i]
	o.polls = max(o.polls-1, 0)
	return o, o.polls == 0 && !time.Now().Before(o.until)
}

// An answerDocument is the body of an answer that is not a refusal.
type answerDocument struct {
	OperationID string         `json:"operationId,omitempty"`
	Status      string         `json:"status"`
	State       *stateDocument `json:"registrationState,omitempty"`
}

// present returns the answer about an operation: its result, or that it is in progress.
func (k *call) present(o *operation, through bool) Answer {
	a := Answer{Status: 202, RetryAfter: strconv.Itoa(hub.Seconds(k.s.o.RetryAfter))}
	d := answerDocument{OperationID: o.id, Status: statusAssigning}
	if through {
		state := o.state.as(k.c.APIVersion)
		a.Status, a.RetryAfter, d.Status, d.State = 200, "", state.Status, &state
	}
	k.spoil(&a, &d)
	a.state = d.State
	return a
}

// lookup returns the state of the last registration. The service issues no certificates here.
func (k *call) lookup(body []byte) Answer {
	s, c := k.s, k.c
	r := dpsdata.Request{Operation: dpsdata.OperationLookup, Body: slices.Clone(body)}
	if _, bad := s.match(c); bad != nil {
		return k.refuse(r, bad)
	}
	csr, bad := readBody(c, &r)
	if bad == nil && csr != nil {
		bad = Errorf(CodeBadRequest, "csr in a status look-up; register with it")
	}
	if bad != nil {
		return k.refuse(r, bad)
	}
	state, ok := s.lastState(c.ID)
	if !ok {
		return k.refuse(r, Errorf(CodeNotEnrolled, "%q has not registered", c.ID))
	}
	state = state.as(c.APIVersion)
	a := Answer{Status: 200, Body: document.JSON(state), state: &state}
	s.log(c, r, a)
	return a
}

// lastState returns the state of the last registration, which has no issued certificates: only the
// operation that issued them tells them.
func (s *Service) lastState(id string) (stateDocument, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[fold(id)]
	if rec == nil || len(rec.operations) == 0 {
		return stateDocument{}, false
	}
	state := rec.operations[len(rec.operations)-1].state
	state.IssuedChain = nil
	return state, true
}

// State returns the state of the last registration, in JSON, as a version of the API has it.
func (s *Service) State(id, version string) ([]byte, error) {
	state, ok := s.lastState(id)
	if !ok {
		return nil, fmt.Errorf("%w: %s", ErrNotEnrolled, id)
	}
	return document.JSON(state.as(version)), nil
}

// Registration returns the record of a device that has registered.
func (s *Service) Registration(id string) (dpsdata.Registration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[fold(id)]
	if rec == nil || rec.data.Status == "" {
		return dpsdata.Registration{}, fmt.Errorf("%w: %s", ErrNotEnrolled, id)
	}
	return rec.data, nil
}

// Registrations returns all records, sorted by id.
func (s *Service) Registrations() []dpsdata.Registration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []dpsdata.Registration
	for _, rec := range s.records {
		if rec.data.Status != "" {
			all = append(all, rec.data)
		}
	}
	slices.SortFunc(all, func(a, b dpsdata.Registration) int {
		if fold(a.ID) < fold(b.ID) {
			return -1
		}
		return 1
	})
	return all
}

// DeleteRegistration removes the record of a registration if it has the ETag, which may be "*". The
// device stays at its hub.
func (s *Service) DeleteRegistration(id, etag string) error {
	defer s.Net.Records.Saved()
	s.mu.Lock()
	defer s.mu.Unlock()
	rec := s.records[fold(id)]
	switch {
	case rec == nil:
		return fmt.Errorf("%w: %s", ErrNotEnrolled, id)
	case etag != "*" && etag != etagOf(rec.change):
		return Errorf(CodePrecondition, "etag %q: the etag of the registration %s is %q; read it again", etag, id,
			etagOf(rec.change))
	}
	delete(s.records, fold(id))
	s.touchRegistration(id)
	return nil
}
