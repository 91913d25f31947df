package servicefront

import (
	"net/http"
	"strconv"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

var digitalTwinRoutes = []web.Route{
	{Kind: fault.RouteTwin, Method: http.MethodGet, Path: "digitaltwins/{device}", Open: true,
		Do: asService(hubdata.ServiceConnect, getDigitalTwin)},
	{Kind: fault.RouteTwin, Method: http.MethodPatch, Path: "digitaltwins/{device}", Open: true,
		Do: asService(hubdata.ServiceConnect, patchDigitalTwin)},
	{Kind: fault.RouteMethod, Method: http.MethodPost, Path: "digitaltwins/{device}/commands/{command}", Open: true,
		Do: asService(hubdata.ServiceConnect, postCommand)},
	{Kind: fault.RouteMethod, Method: http.MethodPost,
		Path: "digitaltwins/{device}/components/{component}/commands/{command}", Open: true,
		Do: asService(hubdata.ServiceConnect, postCommand)},
}

// componentMarker is the member, with the value "c", that makes an object of a twin a component.
// Source: the page "IoT Plug and Play conventions".
const componentMarker = "__t"

// isComponent reports whether a value of a twin is a component.
func isComponent(v any) bool {
	t, ok := v.(hub.Tree)
	return ok && t[componentMarker] == "c"
}

func getDigitalTwin(q *web.Request) (web.Answer, error) {
	t, err := q.Hub.TwinState(q.ID)
	if err != nil {
		return web.Answer{}, err
	}
	doc, etag := digitalTwinOf(q.ID.Device, t)
	return web.AnswerJSON(doc, etag), nil
}

// digitalTwinOf returns a twin in the form of a digital twin, and its ETag.
func digitalTwinOf(id string, t *hub.TwinState) (doc hub.Tree, etag string) {
	v := t.View()
	desired := half{v.Desired.Tree, v.Desired.Stamp.Metadata(true)}
	reported := half{v.Reported.Tree, v.Reported.Stamp.Metadata(false)}
	doc = hub.Tree{}
	meta := members(doc, desired, reported)
	meta["$model"] = v.Model
	doc["$metadata"], doc["$dtId"] = meta, id
	return doc, v.Etag
}

// A half is desired or reported properties, or a component in them, with its metadata.
type half struct{ values, meta hub.Tree }

// at returns the component of a name.
func (h half) at(name string) half {
	values, _ := h.values[name].(hub.Tree)
	meta, _ := h.meta[name].(hub.Tree)
	return half{values, meta}
}

// members adds the properties and components to a document, and returns their metadata.
func members(doc hub.Tree, desired, reported half) (meta hub.Tree) {
	meta = hub.Tree{}
	for _, half := range []half{desired, reported} {
		for name, v := range half.values {
			switch {
			case name == componentMarker, meta[name] != nil, doc[name] != nil:
			case isComponent(v):
				component := hub.Tree{}
				component["$metadata"] = members(component, desired.at(name), reported.at(name))
				doc[name] = component
			default:
				meta[name] = property(doc, name, desired, reported)
			}
		}
	}
	return meta
}

// property adds a property's reported value to a document, and returns its metadata. A writable
// property is reported with an acknowledgement of its desired value.
func property(doc hub.Tree, name string, desired, reported half) hub.Tree {
	meta := hub.Tree{}
	stamp := func(h half, member string) any { return h.at(name).meta[member] }
	if v, ok := desired.values[name]; ok {
		meta["desiredValue"], meta["desiredVersion"] = v, stamp(desired, "$lastUpdatedVersion")
		meta["lastUpdateTime"] = stamp(desired, "$lastUpdated")
	}
	v, ok := reported.values[name]
	if !ok {
		return meta
	}
	meta["lastUpdateTime"] = stamp(reported, "$lastUpdated")
	if ack, ok := v.(hub.Tree); ok && ack["ac"] != nil && ack["av"] != nil {
		for from, to := range map[string]string{"ac": "ackCode", "av": "ackVersion", "ad": "ackDescription"} {
			if ack[from] != nil {
				meta[to] = ack[from]
			}
		}
		v = ack["value"]
	}
	doc[name] = v
	return meta
}

// patchDigitalTwin changes desired properties by a JSON patch.
func patchDigitalTwin(q *web.Request) (web.Answer, error) {
	t, err := q.Hub.TwinState(q.ID)
	if err != nil {
		return web.Answer{}, err
	}
	var all []patchStep
	if err := q.ReadArray(&all); err != nil {
		return web.Answer{}, err
	}
	settings, bad := patchSettings(all, t.View().Desired.Tree)
	if bad != nil {
		return web.Answer{}, bad
	}
	etag, _ := ifMatch(q)
	if err := q.Hub.WriteSettings(q.ID, settings, etag); err != nil {
		return web.Answer{}, err
	}
	header := http.Header{"Location": {"https://" + q.Hub.Host + q.Path()}}
	header.Set("ETag", `"`+t.View().Etag+`"`)
	return web.Answer{Status: http.StatusAccepted, Header: header}, nil
}

// postCommand calls the method of a command.
func postCommand(q *web.Request) (web.Answer, error) {
	body, bad := q.Read(hubdata.MaxMethodPayload)
	if bad != nil {
		return web.Answer{}, bad
	}
	d := methodDocument{MethodName: q.Vars["command"], Payload: body}
	if c := q.Vars["component"]; c != "" {
		d.MethodName = c + "*" + d.MethodName
	}
	for name, seconds := range map[string]**int{
		"connectTimeoutInSeconds": &d.ConnectTimeoutInSeconds, "responseTimeoutInSeconds": &d.ResponseTimeoutInSeconds,
	} {
		text := q.Query.Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return web.Answer{}, web.Errorf(hub.CodeArgumentInvalid, "%s %.40q, want a number of seconds", name, text)
		}
		*seconds = &n
	}
	call, err := d.call()
	if err != nil {
		return web.Answer{}, err
	}
	result, err := q.Hub.InvokeMethod(q.Context(), q.ID, call)
	if err != nil {
		return web.Answer{}, err
	}
	a := web.AnswerJSON(payloadOf(result), "")
	a.Header.Set("x-ms-command-statuscode", strconv.Itoa(result.Status))
	return a, nil
}
