package testbroker

import (
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// telemetryRoutes are the requests that send messages.
var telemetryRoutes = []httpRoute{
	{kind: RouteTelemetry, method: http.MethodPost, path: "devices/{device}/messages/events", do: postTelemetry},
	{kind: RouteTelemetry, method: http.MethodPost, path: "devices/{device}/modules/{module}/messages/events",
		do: postTelemetry},
}

// appHeader is what the names of application properties begin with, in any letter case.
const appHeader = "iothub-app-"

// systemHeaders are the names of system properties over HTTP, in lower case, and what the log calls
// them. Names that begin with "iothub-" and are not here mean nothing.
var systemHeaders = map[string]string{
	"iothub-messageid":       "$.mid",
	"iothub-correlationid":   "$.cid",
	"iothub-userid":          "$.uid",
	"iothub-to":              "$.to",
	"iothub-contenttype":     "$.ct",
	"iothub-contentencoding": "$.ce",
	"iothub-expiry":          "$.exp",
	"iothub-creationtimeutc": "$.ctime",
	"iothub-messageschema":   "$.schema",
	"iothub-interface-id":    "$.ifid",
	"dt-subject":             "$.sub",
	"iothub-ack":             "iothub-ack",
	"iothub-operation":       "iothub-operation",
}

// postTelemetry stores what a request carries and answers it, unless a fault has it otherwise.
func postTelemetry(q *httpRequest) httpAnswer {
	h, c := q.hub, q.c
	if in := h.faults.take(DropDuringPublish, q.id); in != nil {
		io.CopyN(io.Discard, q.Body, max(q.ContentLength/2, 0))
		return q.cut(in)
	}
	all, bad := q.readTelemetry()
	if bad != nil {
		return q.fail(bad)
	}
	if len(all) == 1 {
		if a, ok := q.order(all[0]); ok {
			return a
		}
	}
	for _, in := range h.faults.reached(q.id) {
		h.begin(in)
	}
	if c.mode.Load() != open {
		return httpAnswer{way: wayNone}
	}
	if bad := q.overdrawn(); bad != nil {
		return q.fail(bad)
	}
	if in := h.faults.take(DropBeforePublish, q.id); in != nil {
		return q.cut(in)
	}
	if in := h.faults.take(Forget, q.id); in != nil {
		q.happened(in)
	} else {
		for _, m := range all {
			m.Received = h.now()
			h.store(m)
			h.faults.spend(q.id, m.Received, sizeOf(&m))
		}
		h.changed.wake()
	}
	if in := h.faults.take(DropAfterPublish, q.id); in != nil {
		return q.cut(in)
	}
	if in := h.faults.take(GarbageOnPublish, q.id); in != nil {
		q.happened(in)
		c.Write(in.fault.garbageHTTP(q.ProtoMajor))
	}
	return q.acknowledge()
}

// acknowledge is the answer to a message that was taken, at the time that faults set.
func (q *httpRequest) acknowledge() httpAnswer {
	h := q.hub
	if in := h.faults.take(SwallowPuback, q.id); in != nil {
		return q.mute(in)
	}
	if in := h.faults.take(DelayPuback, q.id); in != nil {
		q.happened(in)
		if !q.sleep(in.fault.Delay) {
			return httpAnswer{way: wayNone}
		}
	}
	a := httpAnswer{status: http.StatusNoContent}
	if in := h.faults.take(DropAfterPuback, q.id); in != nil {
		a.way, a.fault = wayLast, in
	}
	return a
}

// overdrawn refuses messages for a quota, or because their device asked for that.
func (q *httpRequest) overdrawn() *httpError {
	h := q.hub
	if in := h.faults.exhausted(q.id, h.now()); in != nil {
		q.happened(in)
		return httpErrorf(403002, "messages of the day are used up")
	}
	if o, ok := h.stands(q.id, func(o standingOrder) bool { return o.refusal != 0 }); ok {
		return httpErrorf(o.refusal, "%v", orderError{o.name, o.record.Reason})
	}
	return nil
}

// readTelemetry reads a message, or all of a batch.
func (q *httpRequest) readTelemetry() ([]Message, *httpError) {
	if e := q.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return nil, httpErrorf(415000, "Content-Encoding %q", e)
	}
	kind := ""
	if t := q.Header.Get("Content-Type"); t != "" {
		var err error
		if kind, _, err = mime.ParseMediaType(t); err != nil {
			return nil, httpErrorf(415000, "Content-Type %q: %v", t, err)
		}
	}
	properties, bad := q.headerProperties()
	if bad != nil {
		return nil, bad
	}
	body, bad := q.read(MaxMessage)
	if bad != nil {
		return nil, bad
	}
	if kind == batchType {
		return q.readBatch(body)
	}
	m, bad := q.message(body, properties)
	return []Message{m}, bad
}

// headerProperties takes the properties from the head, by their names in lower case: what case they
// were sent in is not known for sure.
func (q *httpRequest) headerProperties() (map[string]string, *httpError) {
	all := make(map[string]string)
	for name, values := range q.Header {
		name = strings.ToLower(name)
		if !strings.HasPrefix(name, "iothub-") && systemHeaders[name] == "" {
			continue
		}
		if len(values) != 1 {
			return nil, httpErrorf(400004, "header %s comes %d times", name, len(values))
		}
		all[name] = values[0]
	}
	return all, nil
}

// message makes of a body and properties, by the names of headers, what the log has.
func (q *httpRequest) message(body []byte, properties map[string]string) (Message, *httpError) {
	m := Message{
		DeviceID: q.id.device, ModuleID: q.id.module, Protocol: HTTP, Topic: q.path(), QoS: 1, Connection: q.c.number,
		Body: body,
	}
	seen := make(map[string]bool, len(properties))
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		value := properties[name]
		lower := strings.ToLower(name)
		if seen[lower] {
			return m, httpErrorf(400004, "property %s comes more than once", lower)
		}
		seen[lower] = true
		if !utf8.ValidString(value) {
			return m, httpErrorf(400004, "property %s is not UTF-8", name)
		}
		if strings.HasPrefix(lower, appHeader) {
			p := Property{name[len(appHeader):], value}
			if bad := q.hub.checkProperty(p); bad != nil {
				return m, bad
			}
			m.Properties = append(m.Properties, p)
			continue
		}
		wire := systemHeaders[lower]
		if wire == "" {
			continue
		}
		m.System = append(m.System, Property{wire, value})
		switch wire {
		case "$.mid":
			m.MessageID = value
		case "$.cid":
			m.CorrelationID = value
		case "$.ct":
			m.ContentType = value
		case "$.ce":
			m.ContentEncoding = value
		case "$.sub":
			m.Component = value
		case "$.ctime":
			m.CreationTime = value
		case "$.exp":
			m.Expiry = value
		case "$.to":
			if want := "/" + q.id.telemetryPath(); !samePath(value, want) {
				return m, httpErrorf(400004, "iothub-to %q, want %q", value, want)
			}
		}
	}
	if len(m.MessageID) > MaxMessageID {
		return m, httpErrorf(400004, "message id of %d characters, at most %d are allowed", len(m.MessageID), MaxMessageID)
	}
	if n := sizeOf(&m); n > MaxMessage {
		return m, httpErrorf(413001, "message of %d bytes, at most %d are allowed", n, MaxMessage)
	}
	return m, nil
}

// telemetryPath is where the identity posts messages.
func (id identity) telemetryPath() string { return strings.TrimSuffix(id.telemetry(), "/") }

// samePath compares paths, the first of which may be percent-encoded.
func samePath(a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	text, err := url.PathUnescape(a)
	return err == nil && strings.EqualFold(text, b)
}

// checkProperty checks the name, and the value if the hub is to be strict with it, of an
// application property.
func (h *Hub) checkProperty(p Property) *httpError {
	switch {
	case p.Name == "":
		return httpErrorf(400004, "property without a name")
	case !isToken(p.Name):
		return httpErrorf(400004, "property %q: the name has characters that are not allowed", p.Name)
	case h.http.StrictValues && !isToken(p.Value):
		return httpErrorf(400004, "property %q: the value has characters that are not allowed", p.Name)
	}
	return nil
}

// isToken says whether a text has nothing but the characters of names [RFC 9110, section 5.6.2].
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
