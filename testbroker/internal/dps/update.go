package dps

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/internal/updates"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// UpdateOperations are the requests about updates, by their names in paths and topics. Devices send
// either name over either protocol, in any letter case.
var UpdateOperations = map[string]dpsdata.Operation{
	"requestonboardingupdates":           dpsdata.OperationCheckOnboarding,
	"iotdps-get-onboarding-deviceupdate": dpsdata.OperationCheckOnboarding,
	"requestsoftwareupdates":             dpsdata.OperationCheckUpdate,
	"iotdps-get-deviceupdate":            dpsdata.OperationCheckUpdate,
	"reportupdatestatus":                 dpsdata.OperationReportUpdate,
	"iotdps-report-deviceupdatestatus":   dpsdata.OperationReportUpdate,
}

// FindUpdateOperation returns the operation of a name.
func FindUpdateOperation(name string) (dpsdata.Operation, bool) {
	op, ok := UpdateOperations[strings.ToLower(name)]
	return op, ok
}

// updatesVersion is the only version of the API that has updates.
const updatesVersion = "2026-11-02-preview"

// codeDisabled refuses a request of a device whose enrollment is disabled.
const codeDisabled = 403001

// LinkUpdates links an update service, in place of the present one.
func (s *Service) LinkUpdates(u *updates.Service) {
	u.LinkedTo(s.Net.Host)
	u.Watch(s.Net.Changed.Wake)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.updates = u
}

// Updates returns the update service; nil if none is linked.
func (s *Service) Updates() *updates.Service {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.updates
}

// update executes a request about updates.
func (k *call) update(body []byte) Answer {
	s, c := k.s, k.c
	r := dpsdata.Request{Operation: k.op, Body: slices.Clone(body)}
	m, bad := s.match(c)
	switch {
	case bad != nil:
	case m.data.Disabled:
		bad = Errorf(codeDisabled, "enrollment %q is disabled", m.data.ID)
	case c.APIVersion != updatesVersion:
		bad = refusedUpdate(updatedata.CodeUnsupportedVersion, "api-version %s has no updates; give %s", c.APIVersion,
			updatesVersion)
	case s.Updates() == nil:
		bad = refusedUpdate(updatedata.CodeNotLinked, "no update service is linked")
	default:
		if f := k.take(fault.RefuseUpdate); f != nil {
			bad = declaredRefusal(f)
		}
	}
	if bad != nil {
		return k.refuse(r, bad)
	}
	return k.serveUpdate(r)
}

func (k *call) serveUpdate(r dpsdata.Request) Answer {
	s := k.s
	a := Answer{Status: 200}
	var bad *updates.Error
	if k.op == dpsdata.OperationReportUpdate {
		var report updatedata.Report
		a.Body, report, bad = s.Updates().Report(k.c.ID, r.Body)
		a.about = string(report.Result.Outcome)
	} else {
		a.Body, a.about, bad = s.Updates().Check(k.c.ID, k.op == dpsdata.OperationCheckOnboarding, r.Body, k.take)
	}
	if bad != nil {
		return k.refuse(r, &Error{Code: bad.Number, Text: bad.Text, Update: bad.Code, Target: bad.Target})
	}
	if f := k.take(fault.WrongRetryAfter); f != nil {
		a.RetryAfter = f.Text
	}
	if f := k.take(fault.GarbleProvisioning); f != nil {
		a.Body = bytes.Clone(a.Body[:len(a.Body)/2])
		if len(f.Bytes) > 0 {
			a.Body = f.Bytes
		}
	}
	s.log(k.c, r, a)
	return a
}

// refusedUpdate returns a refusal with a code of the update service.
func refusedUpdate(code updatedata.Code, format string, args ...any) *Error {
	e := Errorf(code.Number(), format, args...)
	e.Update = code
	return e
}

// declaredRefusal returns the refusal that a fault declares.
func declaredRefusal(f *fault.Fault) *Error {
	code := updatedata.Code(f.Text)
	number := cmp.Or(code.Number(), 400000) // of a code of the future
	e := &Error{Code: cmp.Or(f.ErrorCode, number), Text: cmp.Or(f.Description, "fault "+f.Kind.String()), Update: code,
		RetryAfter: f.RetryAfter, status: cmp.Or(f.Status, number/1000)}
	if f.Description == f.Text { // as the live service does
		e.Update = ""
	}
	return e
}
