package testbroker

import (
	"encoding/json"
	"net/http"
	"time"
)

var methodRoutes = []httpRoute{
	{kind: RouteMethod, method: http.MethodPost, path: "twins/{device}/methods", open: true, do: asService(ServiceConnect,
		postMethod)},
	{kind: RouteMethod, method: http.MethodPost, path: "twins/{device}/modules/{module}/methods", open: true,
		do: asService(ServiceConnect, postMethod)},
}

// What the time-outs of a call may be, in seconds.
const (
	minResponseSeconds = 5
	maxResponseSeconds = 300
	maxConnectSeconds  = 300
)

// postMethod calls a method.
func postMethod(q *httpRequest) (httpAnswer, error) {
	var call struct {
		MethodName               string          `json:"methodName"`
		Payload                  json.RawMessage `json:"payload"`
		ResponseTimeoutInSeconds *int            `json:"responseTimeoutInSeconds"`
		ConnectTimeoutInSeconds  int             `json:"connectTimeoutInSeconds"`
	}
	if err := q.readJSON(&call); err != nil {
		return httpAnswer{}, err
	}
	m := MethodCall{Name: call.MethodName, Payload: call.Payload,
		ConnectTimeout: time.Duration(call.ConnectTimeoutInSeconds) * time.Second}
	if s := call.ResponseTimeoutInSeconds; s != nil {
		if *s < minResponseSeconds || *s > maxResponseSeconds {
			return httpAnswer{}, httpErrorf(codeArgumentInvalid, "responseTimeoutInSeconds %d, want %d to %d", *s,
				minResponseSeconds, maxResponseSeconds)
		}
		m.ResponseTimeout = time.Duration(*s) * time.Second
	}
	if s := call.ConnectTimeoutInSeconds; s < 0 || s > maxConnectSeconds {
		return httpAnswer{}, httpErrorf(codeArgumentInvalid, "connectTimeoutInSeconds %d, want 0 to %d", s, maxConnectSeconds)
	}
	result, err := q.hub.callMethod(q.Context(), q.id, m)
	if err != nil {
		return httpAnswer{}, err
	}
	if result.Payload == nil {
		result.Payload = []byte("null")
	}
	return answerJSON(struct {
		Status  int             `json:"status"`
		Payload json.RawMessage `json:"payload"`
	}{result.Status, result.Payload}, ""), nil
}
