package servicefront

import (
	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/backend"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var twinRoutes = serviceRoutes(fault.RouteTwin, []serviceRow{
	{"GET twins/{device}", hubdata.RightServiceConnect, getTwin},
	{"GET twins/{device}/modules/{module}", hubdata.RightServiceConnect, getTwin},
	{"PATCH twins/{device}", hubdata.RightServiceConnect, updateTwin(false)},
	{"PATCH twins/{device}/modules/{module}", hubdata.RightServiceConnect, updateTwin(false)},
	{"PUT twins/{device}", hubdata.RightServiceConnect, updateTwin(true)},
	{"PUT twins/{device}/modules/{module}", hubdata.RightServiceConnect, updateTwin(true)},
})

// A twinDocument is the part of a twin that a back end can change. Other members are ignored.
type twinDocument struct {
	Tags       document.Tree `json:"tags"`
	Properties struct {
		Desired document.Tree `json:"desired"`
	} `json:"properties"`
}

// updateTwin returns the handler that merges a document into a twin, or replaces the twin by it.
func updateTwin(replace bool) handler {
	return withBody(func(q *web.Request, doc *twinDocument) (web.Answer, error) {
		u := hub.TwinUpdate{Desired: writable(doc.Properties.Desired), Tags: writable(doc.Tags), Replace: replace}
		if replace {
			if u.Desired == nil {
				u.Desired = document.Tree{}
			}
			if u.Tags == nil {
				u.Tags = document.Tree{}
			}
		}
		u.Etag, _ = ifMatch(q)
		if _, err := q.Hub.Update(q.ID, u); err != nil {
			return web.Answer{}, err
		}
		return getTwin(q)
	})
}

// writable removes the members that only the hub writes, because back ends send back what they have
// read.
func writable(t document.Tree) document.Tree {
	delete(t, "$version")
	delete(t, "$metadata")
	return t
}

func getTwin(q *web.Request) (web.Answer, error) {
	t, err := q.Hub.TwinState(q.ID)
	if err != nil {
		return web.Answer{}, err
	}
	identity, err := documentOf(q.Hub, q.ID)
	if err != nil {
		return web.Answer{}, err
	}
	doc, etag := service(q.Hub, t, identity)
	return web.AnswerJSON(doc, etag), nil
}

// service returns the twin as back ends see it, including registry data. It consists of JSON values
// as package query takes them.
func service(h *hub.Hub, t *hub.TwinState, d identityDocument) (doc document.Tree, etag string) {
	v := t.View()
	part := func(s document.Section, versions bool) document.Tree {
		p := s.Document()
		p["$metadata"] = s.Stamp.Metadata(versions)
		return p
	}
	etag = v.Etag
	doc = document.Tree{
		"deviceId": d.DeviceID, "etag": etag, "deviceEtag": d.ETag, "version": v.Version, "modelId": v.Model,
		"status": d.Status, "statusUpdateTime": d.StatusUpdatedTime, "connectionState": d.ConnectionState,
		"lastActivityTime":          d.LastActivityTime,
		"cloudToDeviceMessageCount": d.CloudToDeviceMessageCount, "authenticationType": d.Authentication.Type,
		"x509Thumbprint": d.Authentication.X509Thumbprint.tree(),
		"capabilities":   document.Tree{"iotEdge": d.Capabilities.IoTEdge},
		"properties":     document.Tree{"desired": part(v.Desired, true), "reported": part(v.Reported, false)},
		"tags":           v.Tags.Tree,
	}
	if d.DeviceScope != "" {
		doc["deviceScope"] = d.DeviceScope
	}
	if d.ModuleID != "" {
		doc["moduleId"] = d.ModuleID
	}
	states := document.Tree{}
	for id, state := range backend.Of(h).ConfigurationStates(identity.Identity{Device: d.DeviceID, Module: d.ModuleID}) {
		states[id] = document.Tree{"status": state}
	}
	if len(states) > 0 {
		doc["configurations"] = states
	}
	return doc, etag
}
