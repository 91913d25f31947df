package httpfront

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// InvokeRoutes are the routes of method calls of modules. Only a gateway has them. Back ends use
// the same paths at a hub: see isModules.
var InvokeRoutes = []web.Route{
	{Kind: fault.RouteInvoke, Method: http.MethodPost, Path: "twins/{called}/methods",
		For: isModules, ID: caller, Open: true, Do: postInvoke, Fails: failInvoke},
	{Kind: fault.RouteInvoke, Method: http.MethodPost, Path: "twins/{called}/modules/{calledModule}/methods",
		For: isModules, ID: caller, Open: true, Do: postInvoke, Fails: failInvoke},
}

// callerHeader names the calling module, "deviceID/moduleID".
const callerHeader = "x-ms-edge-moduleId"

// Limits of a call.
const (
	maxMethodName      = 100
	minResponseSeconds = 5
	maxResponseSeconds = 300
	maxConnectSeconds  = 300
)

// isModules reports whether a request is one of a module at a gateway. Those of back ends have a
// token of a policy.
func isModules(h *hub.Hub, r *http.Request) bool {
	if h.Gateway == nil {
		return false
	}
	t, err := identity.ParseToken(r.Header.Get("Authorization"))
	return err != nil || t.Policy == ""
}

// caller returns the module that a request states to come from; empty if the header is not
// "deviceID/moduleID".
func caller(r *http.Request) identity.Identity {
	device, module, _ := strings.Cut(r.Header.Get(callerHeader), "/")
	if identity.CheckID("device", device) != nil || identity.CheckID("module", module) != nil {
		return identity.Identity{}
	}
	return identity.Identity{Device: device, Module: module}
}

// failInvoke returns the answer to a refused call, in the form of a gateway.
func failInvoke(_ *web.Request, e *web.Error) web.Answer {
	a := web.AnswerJSON(struct {
		Message string `json:"message"`
	}{strings.ToValidUTF8(e.Text, "?")}, "")
	a.Status = e.Status()
	return a
}

// postInvoke calls a method of a module or device behind the gateway. It checks in the order of a
// gateway: the body, the header, the device, the token.
func postInvoke(q *web.Request) web.Answer {
	m, err := readInvoke(q)
	called := identity.Identity{Device: q.Vars["called"], Module: q.Vars["calledModule"]}
	if err == nil {
		err = checkCaller(q, called)
	}
	if err != nil {
		bad := web.AsServiceError(err)
		q.Conn.Refused(q.Request, q.ID, bad.Status(), bad)
		return q.Fail(bad)
	}
	return invoke(q, called, m)
}

func readInvoke(q *web.Request) (hubdata.MethodCall, error) {
	body := struct {
		Name     string          `json:"methodName"`
		Payload  json.RawMessage `json:"payload"`
		Response int             `json:"responseTimeoutInSeconds"`
		Connect  int             `json:"connectTimeoutInSeconds"`
	}{Response: 30}
	if err := q.ReadJSON(&body); err != nil {
		return hubdata.MethodCall{}, err
	}
	refuse := func(format string, args ...any) (hubdata.MethodCall, error) {
		return hubdata.MethodCall{}, web.Errorf(hub.CodeArgumentInvalid, format, args...)
	}
	switch {
	case strings.TrimSpace(body.Name) == "":
		return refuse("methodName is missing or empty")
	case utf8.RuneCountInString(body.Name) > maxMethodName:
		return refuse("methodName has %d characters, at most %d are allowed", utf8.RuneCountInString(body.Name),
			maxMethodName)
	case body.Connect < 0 || body.Connect > maxConnectSeconds:
		return refuse("connectTimeoutInSeconds %d, want 0 to %d", body.Connect, maxConnectSeconds)
	case body.Response < minResponseSeconds || body.Response > maxResponseSeconds:
		return refuse("responseTimeoutInSeconds %d, want %d to %d", body.Response, minResponseSeconds, maxResponseSeconds)
	case len(body.Payload) > hubdata.MaxMethodPayload:
		return refuse("payload of %d bytes, at most %d are allowed", len(body.Payload), hubdata.MaxMethodPayload)
	}
	return hubdata.MethodCall{
		Name: body.Name, Payload: body.Payload,
		ResponseTimeout: time.Duration(body.Response) * time.Second,
		ConnectTimeout:  time.Duration(body.Connect) * time.Second,
	}, nil
}

// checkCaller returns why the caller may not call. A gateway takes calls from modules of its own
// device. If that has no name, it is the device of the called module.
func checkCaller(q *web.Request, called identity.Identity) error {
	edge := q.Hub.Gateway.DeviceID
	if edge == "" && called.Module != "" {
		edge = called.Device
	}
	switch {
	case q.ID == identity.Identity{}:
		return web.Errorf(hub.CodeArgumentInvalid, "Invalid header value for %s", callerHeader)
	case edge != "" && edge != q.ID.Device:
		return web.Errorf(401003, "Only modules on the same device can invoke DirectMethods")
	}
	if err := q.AuthenticateAs(q.ID); err != nil {
		return web.Errorf(401003, "%v", err)
	}
	return nil
}

// invoke makes a call and answers with its result. The call goes on when its caller disconnects, as
// at a gateway: a caller without an answer cannot know whether the method ran.
func invoke(q *web.Request, called identity.Identity, m hubdata.MethodCall) web.Answer {
	if !q.Hub.Enter() {
		return q.Fail(web.AsServiceError(hub.ErrClosed))
	}
	type outcome struct {
		result hubdata.MethodResult
		err    error
	}
	over := make(chan outcome, 1)
	ctx := context.WithoutCancel(q.Context())
	go func() { // ends with the call, which the hub's end ends; Close waits for it
		defer q.Hub.Wg.Done()
		result, err := q.Hub.InvokeLocal(ctx, called, m)
		over <- outcome{result, err}
	}()
	select {
	case o := <-over:
		q.Conn.Served() // whatever the answer is
		if o.err != nil {
			return q.Fail(web.AsServiceError(o.err))
		}
		return invoked(o.result)
	case <-q.Context().Done():
	case <-q.C.Closed:
	}
	return web.Answer{Delivery: web.DeliverNothing}
}

// invoked returns the answer with the result of a method.
func invoked(r hubdata.MethodResult) web.Answer {
	if r.Payload == nil {
		r.Payload = []byte("null")
	}
	return web.AnswerJSON(struct {
		Status  int             `json:"status"`
		Payload json.RawMessage `json:"payload"`
	}{r.Status, r.Payload}, "")
}
