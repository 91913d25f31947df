package httpfront

import (
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/faults"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
	"github.com/hubline-iot/hubline/testbroker/internal/identity"
	"github.com/hubline-iot/hubline/testbroker/internal/telemetry"
	"github.com/hubline-iot/hubline/testbroker/internal/web"
)

// TelemetryRoutes are the routes for sending messages.
var TelemetryRoutes = []web.Route{
	{Kind: fault.RouteTelemetry, Method: http.MethodPost, Path: "devices/{device}/messages/events", Do: postTelemetry},
	{Kind: fault.RouteTelemetry, Method: http.MethodPost, Path: "devices/{device}/modules/{module}/messages/events",
		Do: postTelemetry},
}

// appHeader is the prefix of the names of application properties, in any letter case.
const appHeader = "iothub-app-"

// systemHeaders maps the HTTP names of system properties, in lower case, to their names in the log.
// Other names that begin with "iothub-" have no meaning.
var systemHeaders = map[string]string{
	"iothub-messageid":            "$.mid",
	"iothub-correlationid":        "$.cid",
	"iothub-userid":               "$.uid",
	"iothub-to":                   "$.to",
	"iothub-contenttype":          "$.ct",
	"iothub-contentencoding":      "$.ce",
	"iothub-expiry":               "$.exp",
	"iothub-creationtimeutc":      "$.ctime",
	"iothub-messageschema":        "$.schema",
	"iothub-interface-id":         "$.ifid",
	"iothub-connection-device-id": "$.cdid",
	"iothub-connection-module-id": "$.cmid",
	"dt-subject":                  "$.sub",
	"iothub-ack":                  "iothub-ack",
	"iothub-operation":            "iothub-operation",
}

// postTelemetry stores the messages of a request and answers it, unless a fault intervenes.
func postTelemetry(q *web.Request) web.Answer {
	h, c := q.Hub, q.C
	if in := h.Faults.Take(fault.DropDuringPublish, q.ID); in != nil {
		io.CopyN(io.Discard, q.Body, max(q.ContentLength/2, 0))
		return q.Cut(in)
	}
	all, bad := readTelemetry(q)
	if bad != nil {
		return q.Fail(bad)
	}
	if len(all) == 1 {
		if a, ok := order(q, all[0]); ok {
			return a
		}
	}
	for _, in := range h.Faults.Reached(q.ID) {
		h.Begin(in)
	}
	if c.Mode.Load() != hub.Open {
		return web.Answer{Delivery: web.DeliverNothing}
	}
	if bad := overdrawn(q); bad != nil {
		return q.Fail(bad)
	}
	if in := h.Faults.Take(fault.DropBeforePublish, q.ID); in != nil {
		return q.Cut(in)
	}
	if q.Fault(fault.Forget) == nil {
		for i := range all {
			all[i].Received = h.Now()
		}
		h.Store(all...)
		for i := range all {
			h.Faults.Spend(q.ID, all[i].Received, telemetry.SizeOf(&all[i]))
		}
		h.Changed.Wake()
	}
	if in := h.Faults.Take(fault.DropAfterPublish, q.ID); in != nil {
		return q.Cut(in)
	}
	if in := q.Fault(fault.GarbageOnPublish); in != nil {
		c.Write(web.GarbageHTTP(&in.Fault, q.ProtoMajor))
	}
	return acknowledge(q)
}

// acknowledge returns the answer to an accepted message, subject to faults.
func acknowledge(q *web.Request) web.Answer {
	h := q.Hub
	if in := h.Faults.Take(fault.SwallowPuback, q.ID); in != nil {
		return q.Mute(in)
	}
	if in := q.Fault(fault.SlowPuback); in != nil && !q.Sleep(in.Fault.Delay) {
		return web.Answer{Delivery: web.DeliverNothing}
	}
	a := web.Answer{Status: http.StatusNoContent}
	if in := h.Faults.Take(fault.DropAfterPuback, q.ID); in != nil {
		a.Delivery, a.Fault = web.DeliverAndClose, in
	}
	return a
}

// overdrawn refuses messages because of a quota, or because their device requested that.
func overdrawn(q *web.Request) *web.Error {
	h := q.Hub
	if in := h.Faults.Exhausted(q.ID, h.Now()); in != nil {
		q.Happened(in)
		return web.Errorf(403002, "messages of the day are used up")
	}
	if o, ok := h.Requests.Stands(q.ID, func(o faults.Standing) bool { return o.Refusal != 0 }); ok {
		return web.Errorf(o.Refusal, "%v", o.Cause())
	}
	return nil
}

func readTelemetry(q *web.Request) ([]hubdata.Message, *web.Error) {
	if e := q.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, web.Errorf(415000, "Content-Encoding %q", e)
	}
	kind := ""
	if t := q.Header.Get("Content-Type"); t != "" {
		var err error
		if kind, _, err = mime.ParseMediaType(t); err != nil {
			return nil, web.Errorf(415000, "Content-Type %q: %v", t, err)
		}
	}
	properties, bad := headerProperties(q)
	if bad != nil {
		return nil, bad
	}
	body, bad := q.Read(hubdata.MaxMessage)
	if bad != nil {
		return nil, bad
	}
	if kind == batchType {
		return readBatch(q, body)
	}
	m, bad := message(q, body, properties)
	return []hubdata.Message{m}, bad
}

// headerProperties returns the properties in the headers, keyed by name in lower case, because the
// original case is not always known.
func headerProperties(q *web.Request) (map[string]string, *web.Error) {
	all := make(map[string]string)
	for name, values := range q.Header {
		name = strings.ToLower(name)
		if !strings.HasPrefix(name, "iothub-") && systemHeaders[name] == "" {
			continue
		}
		if len(values) != 1 {
			return nil, web.Errorf(400004, "header %s comes %d times", name, len(values))
		}
		all[name] = values[0]
	}
	return all, nil
}

// message converts a body and properties, named like the headers, to a log entry.
func message(q *web.Request, body []byte, properties map[string]string) (hubdata.Message, *web.Error) {
	m := hubdata.Message{
		DeviceID: q.ID.Device, ModuleID: q.ID.Module, Protocol: hubdata.HTTP, Topic: q.Path(), QoS: 1, Connection: q.C.Number,
		Body: body,
	}
	seen := make(map[string]bool, len(properties))
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		value := properties[name]
		lower := strings.ToLower(name)
		if seen[lower] {
			return m, web.Errorf(400004, "property %s comes more than once", lower)
		}
		seen[lower] = true
		if !utf8.ValidString(value) {
			return m, web.Errorf(400004, "property %s is not UTF-8", name)
		}
		if strings.HasPrefix(lower, appHeader) {
			p := hubdata.Property{Name: name[len(appHeader):], Value: value}
			if bad := checkProperty(q.Hub, p); bad != nil {
				return m, bad
			}
			m.Properties = append(m.Properties, p)
			continue
		}
		wire := systemHeaders[lower]
		if wire == "" {
			continue
		}
		telemetry.AddSystem(&m, wire, value)
		if wire == "$.to" {
			if want := "/" + telemetryPath(q.ID); !samePath(value, want) {
				return m, web.Errorf(400004, "iothub-to %q, want %q", value, want)
			}
		}
	}
	if err := telemetry.CheckID(m.MessageID); err != nil {
		return m, web.Errorf(400004, "%v", err)
	}
	if n := telemetry.SizeOf(&m); n > hubdata.MaxMessage {
		return m, web.Errorf(413001, "message of %d bytes, at most %d are allowed", n, hubdata.MaxMessage)
	}
	return m, nil
}

// telemetryPath returns the path to which the identity posts messages.
func telemetryPath(id identity.Identity) string { return strings.TrimSuffix(id.Telemetry(), "/") }

// samePath compares paths, of which a may be percent-encoded.
func samePath(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	text, err := url.PathUnescape(a)
	return err == nil && strings.EqualFold(text, b)
}

// checkProperty checks the name of an application property, and its value if
// HTTPOptions.StrictValues is set.
func checkProperty(h *hub.Hub, p hubdata.Property) *web.Error {
	switch {
	case p.Name == "":
		return web.Errorf(400004, "property without a name")
	case !isToken(p.Name):
		return web.Errorf(400004, "property %q: the name has characters that are not allowed", p.Name)
	case h.HTTP.StrictValues && !isToken(p.Value):
		return web.Errorf(400004, "property %q: the value has characters that are not allowed", p.Name)
	}
	return nil
}

// isToken reports whether a text has only characters allowed in tokens [RFC 9110, section 5.6.2].
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return true
}
