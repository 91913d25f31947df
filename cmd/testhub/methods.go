package main

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/hubline-iot/hubline/testbroker"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

func (c *control) callMethod(r *call) (any, *refusal) {
	var m hubdata.MethodCall
	var payload json.RawMessage
	problem := r.read(text("name", &m.Name), raw("payload", &payload), span("responseTimeout", time.Second, 5*time.Minute,
		&m.ResponseTimeout),
		span("connectTimeout", 0, 5*time.Minute, &m.ConnectTimeout))
	if problem == nil && m.Name == "" {
		problem = bad("name", "is missing", "name the method")
	}
	if problem != nil {
		return nil, problem
	}
	m.Payload = payload
	result, err := c.hub.CallMethod(r.Context(), r.device(), m)
	switch {
	case err == nil:
		return methodResult{result.Status, result.Payload}, nil
	case errors.Is(err, testbroker.ErrNotFound):
		return nil, noDevice(r.device())
	case r.Context().Err() != nil, errors.Is(err, testbroker.ErrClosed):
		return nil, ending()
	}
	return nil, methodProblem(err)
}

// methodProblems maps the service's codes to the wrong field, if any, and the fix.
var methodProblems = map[int]struct{ field, fix string }{
	400004: {"name", "give printable ASCII without space and any of $()<>@,;:\\\"/[]?={}"},
	400027: {"", "call again: the device has a newer connection now"},
	404103: {"", "see that the device is connected and takes methods; connectTimeout waits for it to come"},
	413001: {"", "let the payload, and the answer, have 128 KiB at most"},
	429001: {"", "call again later, or remove the fault that throttles"},
	502000: {"", "let the device answer with JSON, or with nothing"},
	504101: {"", "see that the device answers; responseTimeout is how long that may take"},
}

func methodProblem(err error) *refusal {
	p := serviceProblem(err, "", "see what the device and the faults that are declared make of it")
	if known, ok := methodProblems[p.Code]; ok {
		p.Field, p.Fix = known.field, known.fix
	}
	return p
}

type methodResult struct {
	Status  int             `json:"status"`
	Payload json.RawMessage `json:"payload,omitempty"`
}

// A methodCall is a call and its outcome.
type methodCall struct {
	Device     string          `json:"device"`
	Name       string          `json:"name"`
	Payload    json.RawMessage `json:"payload,omitempty"`
	Deliveries int             `json:"deliveries"`
	Protocol   string          `json:"protocol,omitempty"`
	Connection uint64          `json:"connection,omitempty"`
	Called     time.Time       `json:"called"`
	Ended      *time.Time      `json:"ended,omitempty"`
	Result     *methodResult   `json:"result,omitempty"`
	Error      string          `json:"error,omitempty"`
}

func (c *control) methodLog(r *call, count int) any {
	all := []methodCall{}
	for _, m := range lastOf(c.hub.MethodLog(r.device()), count) {
		one := methodCall{Device: join(m.DeviceID, m.ModuleID), Name: m.Name, Payload: m.Payload, Deliveries: m.Deliveries,
			Connection: m.Connection, Called: m.Called}
		if m.Protocol != 0 {
			one.Protocol = m.Protocol.String()
		}
		switch {
		case m.Ended.IsZero():
		case m.Err != nil:
			one.Ended, one.Error = &m.Ended, m.Err.Error()
		default:
			one.Ended, one.Result = &m.Ended, &methodResult{m.Result.Status, m.Result.Payload}
		}
		all = append(all, one)
	}
	return all
}
