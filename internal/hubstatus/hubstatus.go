// Package hubstatus is what a hub's answers over HTTP mean, for all who ask it something there: a
// table with a row for each status, one with a row for each of the hub's own error codes, and a
// reader of what a hub says about an error.
package hubstatus

import "github.com/hubline-iot/hubline/transport"

// Concern is what an answer of the hub is about, and so who has to deal with it.
type Concern uint8

const (
	// Fine: the hub did what it was asked for.
	Fine Concern = iota
	// Message: this message, or request, would be refused each time; others would not. A batch is
	// split.
	Message
	// Moment: the same would go well at another time.
	Moment
	// Identity: each request of the device would meet the same answer, so the session ends.
	Identity
)

// Verdict is one row: what an answer means.
type Verdict struct {
	Kind   transport.Kind
	About  Concern
	Reason string
}

// ok is the verdict on all that went well; its Kind does not count.
var ok = Verdict{transport.Unknown, Fine, "done"}

// statusTable has a row for each status from 100 to 599: RFC 9110 section 15, the registry of the
// IANA, and what IoT Hub means by them where it says so (Azure IoT Hub developer guide, error
// codes). What is not assigned is Unknown below 500, for repeating what is not understood may do
// harm, and Unavailable from there on.
var statusTable = fillStatuses(map[int]Verdict{
	400: {transport.Invalid, Message, "malformed"},
	401: {transport.Unauthorized, Identity, "token or certificate refused"},
	402: {transport.Quota, Moment, "payment required"},
	403: {transport.Quota, Moment, "an allowance is used up"},
	404: {transport.NotFound, Identity, "hub or device not found, or disabled"},
	405: {transport.Unsupported, Identity, "method not allowed"},
	406: {transport.Unsupported, Identity, "not acceptable"},
	407: {transport.Unauthorized, Identity, "a proxy wants to know who we are"},
	408: {transport.Timeout, Moment, "the request took too long"},
	409: {transport.Conflict, Message, "conflict"},
	410: {transport.NotFound, Identity, "gone"},
	411: {transport.Protocol, Identity, "length required"},
	412: {transport.Conflict, Message, "precondition failed: lock lost"},
	413: {transport.TooLarge, Message, "too large"},
	414: {transport.TooLarge, Message, "address too long"},
	415: {transport.Unsupported, Message, "media type not supported"},
	416: {transport.Invalid, Message, "range not satisfiable"},
	417: {transport.Unsupported, Identity, "expectation failed"},
	421: {transport.Unavailable, Moment, "misdirected: another connection may reach the right place"},
	422: {transport.Invalid, Message, "not processable"},
	423: {transport.Unavailable, Moment, "locked"},
	424: {transport.Unavailable, Moment, "failed dependency"},
	425: {transport.Unavailable, Moment, "too early"},
	426: {transport.Unsupported, Identity, "upgrade required"},
	428: {transport.Conflict, Message, "precondition required"},
	429: {transport.Throttled, Moment, "throttled"},
	431: {transport.TooLarge, Message, "header fields too large"},
	451: {transport.Forbidden, Identity, "unavailable for legal reasons"},
	499: {transport.Unavailable, Moment, "client closed the request"},
	500: {transport.Unavailable, Moment, "error in the service"},
	501: {transport.Unsupported, Identity, "not implemented"},
	502: {transport.Unavailable, Moment, "bad gateway"},
	503: {transport.Unavailable, Moment, "service unavailable"},
	504: {transport.Timeout, Moment, "gateway timed out"},
	505: {transport.Unsupported, Identity, "HTTP version not supported"},
	507: {transport.Quota, Moment, "insufficient storage"},
	511: {transport.Network, Moment, "the network wants a login"},
})

func fillStatuses(known map[int]Verdict) *[600]Verdict {
	var t [600]Verdict
	for status := 100; status < 600; status++ {
		v, listed := known[status]
		switch {
		case listed:
		case status < 200:
			v = Verdict{transport.Protocol, Identity, "no final answer"}
		case status < 300:
			v = ok
		case status < 400:
			v = Verdict{transport.Protocol, Identity,
				"a redirection, which is not followed: a hub sends none; check host and port"}
		case status < 500:
			v = Verdict{transport.Unknown, Identity, "unassigned"}
		default:
			v = Verdict{transport.Unavailable, Moment, "unassigned error of the service"}
		}
		t[status] = v
	}
	return &t
}

// OfStatus is what a status means. It is total.
func OfStatus(status int) Verdict {
	if status < 100 || status >= len(statusTable) {
		return Verdict{transport.Protocol, Identity, "no status of HTTP"}
	}
	return statusTable[status]
}
