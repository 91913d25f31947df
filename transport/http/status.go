package http

import (
	"strconv"

	"github.com/hubline-iot/hubline/transport"
)

// concern is what an answer of the hub is about, and so who has to deal with it.
type concern uint8

const (
	// fine: the hub did what it was asked for.
	fine concern = iota
	// message: this message, or request, would be refused each time; others would not. A batch is split.
	message
	// moment: the same would go well at another time.
	moment
	// identity: each request of the device would meet the same answer, so the session ends.
	identity
)

// verdict is one row: what an answer means.
type verdict struct {
	kind   transport.Kind
	about  concern
	reason string
}

// ok is the verdict on all that went well; its Kind does not count.
var ok = verdict{transport.Unknown, fine, "done"}

// statusTable has a row for each status from 100 to 599: RFC 9110 section 15, the registry of the IANA, and what IoT Hub means by them where it says so (Azure IoT Hub
// developer guide, error codes). What is not assigned is Unknown below 500, for repeating what is not understood may do harm, and Unavailable from there on.
var statusTable = fillStatuses(map[int]verdict{
	400: {transport.Invalid, message, "malformed"},
	401: {transport.Unauthorized, identity, "token or certificate refused"},
	402: {transport.Quota, moment, "payment required"},
	403: {transport.Quota, moment, "an allowance is used up"},
	404: {transport.NotFound, identity, "hub or device not found, or disabled"},
	405: {transport.Unsupported, identity, "method not allowed"},
	406: {transport.Unsupported, identity, "not acceptable"},
	407: {transport.Unauthorized, identity, "a proxy wants to know who we are"},
	408: {transport.Timeout, moment, "the request took too long"},
	409: {transport.Conflict, message, "conflict"},
	410: {transport.NotFound, identity, "gone"},
	411: {transport.Protocol, identity, "length required"},
	412: {transport.Conflict, message, "precondition failed: lock lost"},
	413: {transport.TooLarge, message, "too large"},
	414: {transport.TooLarge, message, "address too long"},
	415: {transport.Unsupported, message, "media type not supported"},
	416: {transport.Invalid, message, "range not satisfiable"},
	417: {transport.Unsupported, identity, "expectation failed"},
	421: {transport.Unavailable, moment, "misdirected: another connection may reach the right place"},
	422: {transport.Invalid, message, "not processable"},
	423: {transport.Unavailable, moment, "locked"},
	424: {transport.Unavailable, moment, "failed dependency"},
	425: {transport.Unavailable, moment, "too early"},
	426: {transport.Unsupported, identity, "upgrade required"},
	428: {transport.Conflict, message, "precondition required"},
	429: {transport.Throttled, moment, "throttled"},
	431: {transport.TooLarge, message, "header fields too large"},
	451: {transport.Forbidden, identity, "unavailable for legal reasons"},
	499: {transport.Unavailable, moment, "client closed the request"},
	500: {transport.Unavailable, moment, "error in the service"},
	501: {transport.Unsupported, identity, "not implemented"},
	502: {transport.Unavailable, moment, "bad gateway"},
	503: {transport.Unavailable, moment, "service unavailable"},
	504: {transport.Timeout, moment, "gateway timed out"},
	505: {transport.Unsupported, identity, "HTTP version not supported"},
	507: {transport.Quota, moment, "insufficient storage"},
	511: {transport.Network, moment, "the network wants a login"},
})

func fillStatuses(known map[int]verdict) *[600]verdict {
	var t [600]verdict
	for status := 100; status < 600; status++ {
		v, listed := known[status]
		switch {
		case listed:
		case status < 200:
			v = verdict{transport.Protocol, identity, "no final answer"}
		case status < 300:
			v = ok
		case status < 400:
			v = verdict{transport.Protocol, identity, "a redirection, which is not followed: a hub sends none; check host and port"}
		case status < 500:
			v = verdict{transport.Unknown, identity, "unassigned"}
		default:
			v = verdict{transport.Unavailable, moment, "unassigned error of the service"}
		}
		t[status] = v
	}
	return &t
}

// verdictOf is what an answer means: by the hub's own code, if there is one that is listed, else by its status.
func verdictOf(e *StatusError) verdict {
	if row, listed := codeTable[e.Code]; listed {
		return row.verdict()
	}
	return statusVerdict(e.Status)
}

// statusVerdict is total.
func statusVerdict(status int) verdict {
	if status < 100 || status >= len(statusTable) {
		return verdict{transport.Protocol, identity, "no status of HTTP"}
	}
	return statusTable[status]
}

// StatusError is an answer of the hub's that is no success: the cause of a *transport.Error, reachable with errors.As.
type StatusError struct {
	// Status is HTTP's, such as 404.
	Status int
	// Code is the hub's own, such as 404001; 0 when it gave none. Its first three digits are a status.
	Code int
	// Name is the hub's name for the code, such as "DeviceNotFound"; empty when it gave none.
	Name string
	// Message is the hub's text, at most 1 KB of it; signatures in it are hidden.
	Message string
	// TrackingID is what the service's support asks for; empty when the hub gave none.
	TrackingID string
}

// Error gives status, meaning, code, name, text and tracking id.
func (e *StatusError) Error() string {
	text := "HTTP " + strconv.Itoa(e.Status)
	if v := verdictOf(e); v.about != fine {
		text += " (" + v.reason + ")"
	}
	if e.Code != 0 {
		text += ", code " + strconv.Itoa(e.Code)
	}
	if e.Name != "" {
		text += " " + e.Name
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	if e.TrackingID != "" {
		text += " (tracking id " + e.TrackingID + ")"
	}
	return text
}
