package hubhttp

import (
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// Verdict is the meaning of an answer, with the reason in words.
type Verdict struct {
	Kind   transport.Kind
	About  statuscode.About
	Reason string
}

// VerdictOfStatus returns the meaning of any status that the request does not ask for.
func VerdictOfStatus(status int) Verdict {
	m := statuscode.Of(status, statuscode.Hub)
	if m.About == statuscode.Fine {
		m = statuscode.Meaning{Kind: transport.Protocol, About: statuscode.Identity}
	}
	return Verdict{m.Kind, m.About, reason(status)}
}

// noHub is the reason of an answer that no hub gives.
const noHub = "no hub answers so: a proxy or a captive portal may have answered in its place"

// NoHub is the meaning of an answer that no hub gives.
var NoHub = Verdict{transport.Protocol, statuscode.Identity, noHub}

// IsFine reports whether a status alone is a success: the hub acknowledges a request. A success
// with content, status 200, counts by that content, which the caller reads first.
func IsFine(status int) bool { return statuscode.Of(status, statuscode.Hub).About == statuscode.Fine }

// reasons are texts for statuses in errors.
var reasons = map[int]string{
	400: "malformed",
	401: "token or certificate refused",
	402: "payment required",
	403: "an allowance is used up",
	404: "hub or device not found, or disabled",
	405: "method not allowed",
	406: "not acceptable",
	407: "a proxy wants to know who we are",
	408: "the request took too long",
	409: "conflict",
	410: "gone",
	411: "length required",
	412: "precondition failed: lock lost",
	413: "too large",
	414: "address too long",
	415: "media type not supported",
	416: "range not satisfiable",
	417: "expectation failed",
	421: "misdirected: another connection may reach the right place",
	422: "not processable",
	423: "locked",
	424: "failed dependency",
	425: "too early",
	426: "upgrade required",
	428: "precondition required",
	429: "throttled",
	431: "header fields too large",
	451: "unavailable for legal reasons",
	499: "client closed the request",
	500: "error in the service",
	501: "not implemented",
	502: "bad gateway",
	503: "service unavailable",
	504: "gateway timed out",
	505: "HTTP version not supported",
	507: "insufficient storage",
	511: "the network wants a login",
}

func reason(status int) string {
	if text, ok := reasons[status]; ok {
		return text
	}
	switch {
	case status < 100 || status > 599:
		return "no status of HTTP"
	case status < 200:
		return "no final answer"
	case status < 300:
		return noHub
	case status < 400:
		return "a redirection, which is not followed: a hub sends none; check host and port"
	case status < 500:
		return "unassigned"
	}
	return "unassigned error of the service"
}
