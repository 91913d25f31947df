package servicefront

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var methodRoutes = []web.Route{
	{
		Kind:   fault.RouteMethod,
		Method: http.MethodPost,
		Path:   "twins/{device}/methods",
		Open:   true,
		Do: asService(hubdata.ServiceConnect,
			postMethod),
	},
	{Kind: fault.RouteMethod, Method: http.MethodPost, Path: "twins/{device}/modules/{module}/methods", Open: true,
		Do: asService(hubdata.ServiceConnect, postMethod)},
}

// Limits of the timeouts of a call, in seconds.
const (
	minResponseSeconds = 5
	maxResponseSeconds = 300
	maxConnectSeconds  = 300
)

// postMethod calls a method.
func postMethod(q *web.Request) (web.Answer, error) {
	var call struct {
		MethodName               string          `json:"methodName"`
		Payload                  json.RawMessage `json:"payload"`
		ResponseTimeoutInSeconds *int            `json:"responseTimeoutInSeconds"`
		ConnectTimeoutInSeconds  int             `json:"connectTimeoutInSeconds"`
	}
	if err := q.ReadJSON(&call); err != nil {
		return web.Answer{}, err
	}
	m := hubdata.MethodCall{Name: call.MethodName, Payload: call.Payload,
		ConnectTimeout: time.Duration(call.ConnectTimeoutInSeconds) * time.Second}
	if s := call.ResponseTimeoutInSeconds; s != nil {
		if *s < minResponseSeconds || *s > maxResponseSeconds {
			return web.Answer{}, web.Errorf(hub.CodeArgumentInvalid, "responseTimeoutInSeconds %d, want %d to %d", *s,
				minResponseSeconds, maxResponseSeconds)
		}
		m.ResponseTimeout = time.Duration(*s) * time.Second
	}
	if s := call.ConnectTimeoutInSeconds; s < 0 || s > maxConnectSeconds {
		return web.Answer{}, web.Errorf(
			hub.CodeArgumentInvalid,
			"connectTimeoutInSeconds %d, want 0 to %d",
			s,
			maxConnectSeconds,
		)
	}
	result, err := q.Hub.InvokeMethod(q.Context(), q.ID, m)
	if err != nil {
		return web.Answer{}, err
	}
	if result.Payload == nil {
		result.Payload = []byte("null")
	}
	return web.AnswerJSON(struct {
		Status  int             `json:"status"`
		Payload json.RawMessage `json:"payload"`
	}{result.Status, result.Payload}, ""), nil
}
