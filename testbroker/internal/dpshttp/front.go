// Package dpshttp is the provisioning service over HTTPS.
package dpshttp

import (
	"net/http"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/dps"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// Routes returns the routes of devices.
func Routes(s *dps.Service) []web.Route {
	all := []web.Route{
		{Kind: fault.RouteRegister, Method: http.MethodPut, Path: "{scope}/registrations/{device}/register",
			Do: asDevice(s, dpsdata.Register, func(q *web.Request, c *dps.Client, body []byte) dps.Answer {
				return s.Register(c, body)
			})},
		{Kind: fault.RouteOperation, Method: http.MethodGet,
			Path: "{scope}/registrations/{device}/operations/{operation}",
			Do: asDevice(s, dpsdata.Poll, func(q *web.Request, c *dps.Client, _ []byte) dps.Answer {
				return s.Poll(c, q.Vars["operation"])
			})},
		{Kind: fault.RouteOperation, Method: http.MethodPost, Path: "{scope}/registrations/{device}",
			Do: asDevice(s, dpsdata.Lookup, func(q *web.Request, c *dps.Client, body []byte) dps.Answer {
				return s.Lookup(c, body)
			})},
	}
	for i := range all {
		all[i].Open = true // the service checks the credentials
	}
	return all
}

// asDevice wraps an operation of the service: it reads the request and writes the answer.
func asDevice(s *dps.Service, op dpsdata.Operation,
	do func(*web.Request, *dps.Client, []byte) dps.Answer) func(*web.Request) web.Answer {
	return func(q *web.Request) web.Answer {
		c, bad := clientOf(q)
		if bad == nil {
			bad = s.CheckStated(q.Vars["scope"], c)
		}
		if bad == nil {
			bad = s.Authenticate(c)
		}
		if bad == nil {
			q.Conn.Admit(q.ID)
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
			return answer(s.Refuse(c, dpsdata.Request{Operation: op, OperationID: q.Vars["operation"]}, bad))
		}
		return answer(do(q, c, body))
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
		t, err := hub.ParseToken(tokens[0])
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
	return web.Answer{Status: a.Status, Header: header, Body: a.Body}
}
