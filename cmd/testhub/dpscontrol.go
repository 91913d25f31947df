package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/dpsdata"
)

// A registration is a device that has registered.
type registration struct {
	Registration string `json:"registration"`
	Enrollment   string `json:"enrollment"`
	Status       string `json:"status"`
	Substatus    string `json:"substatus,omitempty"`
	Hub          string `json:"hub,omitempty"`
	Device       string `json:"device,omitempty"`
	ErrorCode    int    `json:"errorCode,omitempty"`
	ErrorMessage string `json:"errorMessage,omitempty"`
	Moves        int    `json:"moves"`
}

func showRegistration(r dpsdata.Registration) registration {
	return registration{r.ID, r.EnrollmentID, r.Status, r.Substatus, r.Hub, r.DeviceID, r.ErrorCode, r.ErrorMessage,
		r.Moves}
}

// An enrollment is an enrollment without its keys.
type enrollment struct {
	Enrollment   string   `json:"enrollment"`
	Group        bool     `json:"group"`
	Hubs         []string `json:"hubs"`
	Disabled     bool     `json:"disabled"`
	Certificates int      `json:"certificates"`
}

func showEnrollment(e dpsdata.Enrollment) enrollment {
	return enrollment{e.ID, e.Group, append([]string{}, e.Hubs...), e.Disabled, len(e.Certificates)}
}

func (c *control) aboutDPS(r *call) (any, *refusal) {
	hubs := []readyHub{{Host: c.ready.Host, Addresses: c.ready.Addresses, Ports: c.ready.Ports}}
	about := struct {
		readyHub
		IDScope string     `json:"idScope"`
		CA      string     `json:"ca"`
		Hubs    []readyHub `json:"hubs"`
	}{c.ready.DPS.readyHub, c.ready.DPS.IDScope, c.ready.CA, append(hubs, c.ready.Hubs...)}
	return about, r.query()
}

func (c *control) enrollments(r *call) (any, *refusal) {
	return map[string]any{"enrollments": each(c.provider.dps.Enrollments(), showEnrollment)}, r.query()
}

// changed changes the enrollment in the path, and returns it.
func (c *control) changed(r *call, change func(*dpsdata.Enrollment)) (any, *refusal) {
	id := r.PathValue("enrollment")
	err := c.provider.dps.Change(id, change)
	if e, gone := c.provider.dps.Enrollment(id); gone != nil {
		return nil, &refusal{status: http.StatusNotFound, Field: "enrollment", Problem: id + " is not enrolled",
			Fix: "GET /dps/enrollments lists those that are"}
	} else if err == nil {
		return showEnrollment(e), nil
	}
	return nil, bad("enrollment", err.Error(), "leave it as it is")
}

func (c *control) move(r *call) (any, *refusal) {
	var hubs []string
	problem := r.read(list("hubs", func(path string, raw json.RawMessage) *refusal {
		var name string
		if problem := text(path, &name).take(raw, path); problem != nil {
			return problem
		}
		if !slices.ContainsFunc(c.hubNames(), func(n string) bool { return strings.EqualFold(n, name) }) {
			return bad(path, "there is no hub named "+name, "give some of: "+strings.Join(c.hubNames(), ", "))
		}
		hubs = append(hubs, name)
		return nil
	}))
	if problem == nil && len(hubs) == 0 {
		problem = bad("hubs", "is missing or empty", "give some of: "+strings.Join(c.hubNames(), ", "))
	}
	if problem != nil {
		return nil, problem
	}
	return c.changed(r, func(e *dpsdata.Enrollment) { e.Hubs = hubs })
}

func (c *control) hubNames() []string {
	names := []string{c.hub.HostName()}
	for _, h := range c.provider.hubs {
		names = append(names, h.HostName())
	}
	return names
}

func setEnrollment(on bool) handler {
	return bare(func(c *control, r *call) (any, *refusal) {
		return c.changed(r, func(e *dpsdata.Enrollment) { e.Disabled = !on })
	})
}

func (c *control) registrations(r *call) (any, *refusal) {
	return map[string]any{"registrations": each(c.provider.dps.Registrations(), showRegistration)}, r.query()
}

func (c *control) waitRegistration(r *call) (any, *refusal) {
	hub, id := "", r.PathValue("registration")
	var last registration
	problem := c.waits(r, func() any {
		if last.Status == "" {
			return fmt.Sprintf("no registration of %s", id)
		}
		return last
	}, func(ctx context.Context) error {
		return c.provider.dps.Wait(ctx, func() bool {
			one, err := c.provider.dps.Registration(id)
			if err != nil {
				return false
			}
			last = showRegistration(one)
			return one.Status == "assigned" && (hub == "" || strings.EqualFold(one.Hub, hub))
		})
	}, text("hub", &hub))
	return last, problem
}
