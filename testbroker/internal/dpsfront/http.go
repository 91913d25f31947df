package dpsfront

import (
	"net/http"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// deviceRoutes returns the routes of devices.
func deviceRoutes(s *dps.Service) []web.Route {
	all := []web.Route{
		{Kind: fault.RouteRegister, Method: http.MethodPut, Path: "{scope}/registrations/{device}/register",
			Do: serve(s, dpsdata.OperationRegister)},
		{Kind: fault.RouteOperation, Method: http.MethodGet,
			Path: "{scope}/registrations/{device}/operations/{operation}", Do: serve(s, dpsdata.OperationPoll)},
		{Kind: fault.RouteOperation, Method: http.MethodPost, Path: "{scope}/registrations/{device}",
			Do: serve(s, dpsdata.OperationLookup)},
	}
	for name, op := range dps.UpdateOperations {
		kind := fault.RouteUpdateCheck
		if op == dpsdata.OperationReportUpdate {
			kind = fault.RouteUpdateReport
		}
		all = append(all, web.Route{Kind: kind, Method: http.MethodPost,
			Path: "{scope}/registrations/{device}/" + name, Do: serve(s, op)})
	}
	for i := range all {
		all[i].Open = true // the service checks the credentials
	}
	return all
}

// serve returns the handler of an operation: it reads the request and writes the answer.
func serve(s *dps.Service, op dpsdata.Operation) func(*web.Request) web.Answer {
	return func(q *web.Request) web.Answer {
		c, bad := clientOf(q)
		if bad == nil {
			bad = s.CheckStated(q.Vars["scope"], c)
		}
		unproven := bad == nil && s.Unproven(c, op)
		if bad == nil && !unproven {
			if bad = s.Authenticate(c); bad == nil {
				q.Conn.Admit(q.ID)
			}
		}
		var body []byte
		if bad == nil {
			var long *web.Error
			if body, long = q.Read(dps.MaxBody); long != nil {
				bad = dps.Errorf(dps.CodeBadRequest, "%s", long.Text)
			}
		}
		if bad != nil {
			q.Conn.Refused(q.Request, q.ID, bad.Status(), bad)
			return answer(s.Refuse(c, q.C, dpsdata.Request{Operation: op, OperationID: q.Vars["operation"]}, bad))
		}
		a := s.Serve(c, q.C, op, q.Vars["operation"], body)
		if unproven && a.Err != nil {
			q.Conn.Refused(q.Request, q.ID, a.Status, a.Err)
		} else if unproven {
			q.Conn.Served()
		}
		switch {
		case a.Cut != 0:
			q.C.CutFor(hub.FaultError(a.Cut))
			return web.Answer{Delivery: web.DeliverNothing}
		case a.Silent:
			q.Hang()
			return web.Answer{Delivery: web.DeliverNothing}
		case a.Delay > 0 && !q.Sleep(a.Delay):
			return web.Answer{Delivery: web.DeliverNothing}
		}
		return answer(a)
	}
}

// clientOf returns what the client states, with its token or its certificate.
func clientOf(q *web.Request) (*dps.Client, *dps.Error) {
	c := &dps.Client{
		ID: q.ID.Device, APIVersion: q.Query.Get("api-version"), Protocol: hubdata.HTTP, Connection: q.C.Number,
		Chain: q.C.PeerChain(),
	}
	switch tokens := q.Header.Values("Authorization"); len(tokens) {
	case 0:
		return c, nil
	case 1:
		t, err := identity.ParseToken(tokens[0])
		if err != nil {
			return c, dps.Errorf(dps.CodeUnauthorized, "%v", err)
		}
		c.Token = &t
		return c, nil
	default:
		return c, dps.Errorf(dps.CodeUnauthorized, "more than one token")
	}
}

func answer(a dps.Answer) web.Answer {
	header := http.Header{"Content-Type": {"application/json; charset=utf-8"}}
	if a.RetryAfter != "" {
		header.Set("Retry-After", a.RetryAfter)
	}
	if a.Err != nil && a.Err.Update != "" {
		header.Set("x-ms-error-code", string(a.Err.Update))
	}
	return web.Answer{Status: a.Status, Header: header, Body: a.Body}
}
