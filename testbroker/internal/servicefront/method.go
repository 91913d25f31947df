package servicefront

import (
	"encoding/json"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var methodRoutes = serviceRoutes(fault.RouteMethod, []serviceRow{
	{"POST twins/{device}/methods", hubdata.RightServiceConnect, withBody(postMethod)},
	{"POST twins/{device}/modules/{module}/methods", hubdata.RightServiceConnect, withBody(postMethod)},
})

// Limits of the timeouts of a call, in seconds.
const (
	minResponseSeconds = 5
	maxResponseSeconds = 300
	maxConnectSeconds  = 300
)

// A methodDocument is a method call as back ends send it.
type methodDocument struct {
	MethodName               string          `json:"methodName"`
	Payload                  json.RawMessage `json:"payload"`
	ResponseTimeoutInSeconds *int            `json:"responseTimeoutInSeconds"`
	ConnectTimeoutInSeconds  *int            `json:"connectTimeoutInSeconds"`
}

func (d *methodDocument) call() (hubdata.MethodCall, error) {
	m := hubdata.MethodCall{Name: d.MethodName, Payload: d.Payload}
	for _, timeout := range []struct {
		name     string
		given    *int
		from, to int
		is       *time.Duration
	}{
		{"responseTimeoutInSeconds", d.ResponseTimeoutInSeconds, minResponseSeconds, maxResponseSeconds, &m.ResponseTimeout},
		{"connectTimeoutInSeconds", d.ConnectTimeoutInSeconds, 0, maxConnectSeconds, &m.ConnectTimeout},
	} {
		if timeout.given == nil {
			continue
		}
		if s := *timeout.given; s < timeout.from || s > timeout.to {
			return m, web.Errorf(hub.CodeArgumentInvalid, "%s %d, want %d to %d", timeout.name, s, timeout.from, timeout.to)
		}
		*timeout.is = time.Duration(*timeout.given) * time.Second
	}
	return m, nil
}

func postMethod(q *web.Request, d *methodDocument) (web.Answer, error) {
	m, err := d.call()
	if err != nil {
		return web.Answer{}, err
	}
	result, err := q.Hub.InvokeMethod(q.Context(), q.ID, m)
	return web.AnswerJSON(struct {
		Status  int             `json:"status"`
		Payload json.RawMessage `json:"payload"`
	}{result.Status, payloadOf(result)}, ""), err
}

func payloadOf(r hubdata.MethodResult) json.RawMessage {
	if r.Payload == nil {
		return json.RawMessage("null")
	}
	return r.Payload
}
