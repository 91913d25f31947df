package dps

import (
	"encoding/base64"
	"strconv"
	"time"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// A Delivery is how faults want an answer delivered.
type Delivery struct {
	Cut     fault.Kind    // cut the connection with RST instead of answering, because of this fault; zero = answer
	Silent  bool          // never answer
	Delay   time.Duration // answer later
	Twice   bool
	Misname bool // with the id of another request
	Early   bool // before the acknowledgement of the request
	Reorder bool // with the properties in an unusual order
}

// routes maps operations to the kinds of requests that faults select.
var routes = map[dpsdata.Operation]fault.RouteKind{
	dpsdata.OperationRegister: fault.RouteRegister, dpsdata.OperationPoll: fault.RouteOperation,
	dpsdata.OperationLookup:          fault.RouteOperation,
	dpsdata.OperationCheckOnboarding: fault.RouteUpdateCheck, dpsdata.OperationCheckUpdate: fault.RouteUpdateCheck,
	dpsdata.OperationReportUpdate: fault.RouteUpdateReport,
}

// A call is a request while it is served.
type call struct {
	s    *Service
	c    *Client
	conn *hub.Conn
	op   dpsdata.Operation
}

// take returns a fault that hits the request, and counts it.
func (k *call) take(kind fault.Kind) *fault.Fault {
	in := k.s.Net.Faults.TakeIf(kind, k.c.Identity(), func(f *fault.Fault) bool {
		return f.Route == fault.RouteAny || f.Route == routes[k.op]
	})
	if in == nil {
		return nil
	}
	k.s.Net.HappenedTo(in, k.conn, k.c.Identity())
	return &in.Fault
}

// Serve executes a request, subject to faults. The operation id is that of a Poll.
func (s *Service) Serve(c *Client, conn *hub.Conn, op dpsdata.Operation, operation string, body []byte) Answer {
	k := &call{s, c, conn, op}
	if k.take(fault.DropBeforeProvisioning) != nil {
		return Answer{Delivery: Delivery{Cut: fault.DropBeforeProvisioning}}
	}
	var a Answer
	if f := k.take(fault.RefuseProvisioning); f != nil {
		a = k.refuse(dpsdata.Request{Operation: op, OperationID: operation}, refusal(f))
	} else {
		a = k.execute(operation, body)
	}
	switch {
	case k.take(fault.DropAfterProvisioning) != nil:
		return Answer{Delivery: Delivery{Cut: fault.DropAfterProvisioning}}
	case k.take(fault.SwallowProvisioning) != nil:
		a.Silent = true
		return a
	}
	if f := k.take(fault.SlowProvisioning); f != nil {
		a.Delay = f.Delay
	}
	if c.Protocol != hubdata.HTTP {
		a.Twice = k.take(fault.DuplicateProvisioning) != nil
		a.Misname = k.take(fault.MisnameProvisioning) != nil
	}
	if c.Protocol == hubdata.MQTT {
		a.Early = k.take(fault.AnswerBeforePuback) != nil
		a.Reorder = k.take(fault.ReorderProperties) != nil
	}
	return a
}

func (k *call) execute(operation string, body []byte) Answer {
	switch k.op {
	case dpsdata.OperationRegister:
		return k.register(body)
	case dpsdata.OperationPoll:
		return k.poll(operation)
	case dpsdata.OperationLookup:
		return k.lookup(body)
	default:
		return k.update(body)
	}
}

// refusal returns the error that a fault declares.
func refusal(f *fault.Fault) *Error {
	code := f.ErrorCode
	if code == 0 {
		code = hub.CommonCode(f.Status)
	}
	text := f.Description
	if text == "" {
		text = "fault " + f.Kind.String()
	}
	return &Error{Code: code, Text: text, status: f.Status, RetryAfter: f.RetryAfter}
}

// spoil applies the faults of an answer that is not a refusal.
func (k *call) spoil(a *Answer, d *answerDocument) {
	if f := k.take(fault.WrongStatus); f != nil {
		k.wrongStatus(f, a, d)
	}
	if d.State != nil && d.State.Status == statusAssigned {
		for _, wrong := range [...]struct { // always in the same order, so that draws are repeatable
			kind fault.Kind
			text *string
		}{
			{fault.WrongDeviceID, &d.State.DeviceID}, {fault.WrongHub, &d.State.AssignedHub},
			{fault.WrongProfile, &d.State.ConnectionProfile},
		} {
			if f := k.take(wrong.kind); f != nil {
				*wrong.text = f.Text
			}
		}
		if d.State.TPM != nil {
			if f := k.take(fault.WrongAuthenticationKey); f != nil {
				d.State.TPM = &tpmDocument{wrongKey(f)}
			}
		}
		if len(d.State.IssuedChain) > 0 {
			if f := k.take(fault.WrongChain); f != nil {
				d.State.IssuedChain = append([]string{k.wrongLeaf(f)}, d.State.IssuedChain[1:]...)
			}
		}
	}
	if k.take(fault.OmitOperationID) != nil {
		d.OperationID = ""
	}
	if f := k.take(fault.WrongRetryAfter); f != nil {
		a.RetryAfter = f.Text
	}
	a.Body = document.JSON(d)
	if f := k.take(fault.GarbleProvisioning); f != nil {
		a.Body = hub.GarbageOf(f, []byte(`{"operationId`))
	}
}

func (k *call) wrongStatus(f *fault.Fault, a *Answer, d *answerDocument) {
	a.Status, a.RetryAfter, d.Status = 200, "", f.Text
	if f.Text == statusAssigning {
		a.Status, a.RetryAfter, d.State = 202, strconv.Itoa(hub.Seconds(k.s.o.RetryAfter)), nil
		return
	}
	now := document.TimeText(k.s.Net.Now())
	d.State = &stateDocument{RegistrationID: k.c.ID, Status: f.Text, Created: now, Updated: now}
	if f.Text == statusFailed {
		d.State.ErrorCode, d.State.ErrorMessage = f.ErrorCode, f.Description
		if f.ErrorCode == 0 {
			d.State.ErrorCode = codeAllocationFailed
		}
		if f.Description == "" {
			d.State.ErrorMessage = "Custom allocation failed with status code: 400"
		}
	}
}

// wrongLeaf returns a certificate that is not the device's, in base64.
func (k *call) wrongLeaf(f *fault.Fault) string {
	return base64.StdEncoding.EncodeToString(hub.WrongLeaf(f, k.c.ID))
}
