package testbroker

import (
	"net/http"
	"slices"
	"strings"
)

var twinRoutes = []httpRoute{
	{kind: RouteTwin, method: http.MethodGet, path: "twins/{device}", open: true, do: asService(ServiceConnect, getTwin)},
	{kind: RouteTwin, method: http.MethodGet, path: "twins/{device}/modules/{module}", open: true,
		do: asService(ServiceConnect, getTwin)},
	{kind: RouteTwin, method: http.MethodPatch, path: "twins/{device}", open: true, do: asService(ServiceConnect,
		patchTwin)},
	{kind: RouteTwin, method: http.MethodPatch, path: "twins/{device}/modules/{module}", open: true,
		do: asService(ServiceConnect, patchTwin)},
	{kind: RouteTwin, method: http.MethodPut, path: "twins/{device}", open: true, do: asService(ServiceConnect, putTwin)},
	{kind: RouteTwin, method: http.MethodPut, path: "twins/{device}/modules/{module}", open: true,
		do: asService(ServiceConnect, putTwin)},
}

// A twinDocument is what a back end sends of a twin. What else is in it, it cannot change.
type twinDocument struct {
	Tags       tree `json:"tags"`
	Properties struct {
		Desired tree `json:"desired"`
	} `json:"properties"`
}

func getTwin(q *httpRequest) (httpAnswer, error) { return q.twinAnswer() }

// patchTwin merges, putTwin replaces.
func patchTwin(q *httpRequest) (httpAnswer, error) { return q.updateTwin(false) }
func putTwin(q *httpRequest) (httpAnswer, error)   { return q.updateTwin(true) }

func (q *httpRequest) updateTwin(replace bool) (httpAnswer, error) {
	var doc twinDocument
	if err := q.readJSON(&doc); err != nil {
		return httpAnswer{}, err
	}
	u := twinUpdate{desired: writable(doc.Properties.Desired), tags: writable(doc.Tags), replace: replace}
	if replace {
		if u.desired == nil {
			u.desired = tree{}
		}
		if u.tags == nil {
			u.tags = tree{}
		}
	}
	u.etag, _ = q.ifMatch()
	if _, err := q.hub.update(q.id, u); err != nil {
		return httpAnswer{}, err
	}
	return q.twinAnswer()
}

// writable leaves out what only the hub writes; back ends send back what they have read.
func writable(t tree) tree {
	delete(t, "$version")
	delete(t, "$metadata")
	return t
}

func (q *httpRequest) twinAnswer() (httpAnswer, error) {
	t, err := q.hub.twin(q.id)
	if err != nil {
		return httpAnswer{}, err
	}
	identity, err := q.hub.identityDocument(q.id)
	if err != nil {
		return httpAnswer{}, err
	}
	doc, etag := t.service(identity)
	return answerJSON(doc, etag), nil
}

// service is the twin as back ends see it, with what the registry knows.
func (t *twin) service(d identityDocument) (doc tree, etag string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	part := func(s section, versions bool) tree {
		p := s.document()
		p["$metadata"] = s.stamp.metadata(versions)
		return p
	}
	etag = etagOf(t.etag)
	doc = tree{
		"deviceId": d.DeviceID, "etag": etag, "deviceEtag": d.ETag, "version": t.version, "modelId": t.model,
		"status": d.Status, "statusUpdateTime": d.StatusUpdatedTime, "connectionState": d.ConnectionState,
		"lastActivityTime":          d.LastActivityTime,
		"cloudToDeviceMessageCount": d.CloudToDeviceMessageCount, "authenticationType": d.Authentication.Type,
		"x509Thumbprint": d.Authentication.X509Thumbprint, "capabilities": d.Capabilities,
		"properties": tree{"desired": part(t.desired, true), "reported": part(t.reported, false)}, "tags": t.tags.tree,
	}
	if d.ModuleID != "" {
		doc["moduleId"] = d.ModuleID
	}
	return doc, etag
}

// twinsOf returns the twins of devices, or of modules, in the order of their names.
func (h *Hub) twinsOf(modules bool) []tree {
	var all []tree
	for _, id := range h.identities() {
		if (id.module != "") != modules {
			continue
		}
		t, err := h.twin(id)
		d, gone := h.identityDocument(id)
		if err == nil && gone == nil { // it may have been removed meanwhile
			doc, _ := t.service(d)
			all = append(all, doc)
		}
	}
	return all
}

// identities returns who is registered, in the order of their names.
func (h *Hub) identities() []identity {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []identity
	for id := range h.registry {
		all = append(all, id)
	}
	slices.SortFunc(all, func(a, b identity) int { return strings.Compare(a.String(), b.String()) })
	return all
}
