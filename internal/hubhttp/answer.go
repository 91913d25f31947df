package hubhttp

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/hubline-iot/hubline/internal/scrub"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// VerdictOf returns the meaning of a refusal: by the hub's error code if that is listed, else by
// the status.
func VerdictOf(e *transport.StatusError) Verdict {
	if row, listed := codeTable[e.Code]; listed {
		return row.verdict()
	}
	return VerdictOfStatus(e.Status)
}

// CodeOf returns the hub's error code of that name, 0 if there is none.
func CodeOf(name string) int { return codeNamed[name] }

// ReadAnswer parses the hub's description of an error. Header "iothub-errorcode" has the name; the
// body has one of two forms:
//
//	{"Message":"{\"errorCode\":404001,\"trackingId\":\"..\",\"message\":\"..\"}"}
//	{"Message":"ErrorCode:DeviceNotFound;no such device","ExceptionMessage":"Tracking ID:.."}
//
// Other bodies are dropped. A web page is a proxy's or a captive portal's, as is an unexpected
// success. Its refusal says something about the message only if that is too large for the proxy.
func ReadAnswer(status int, header http.Header, body []byte) (*transport.StatusError, Verdict) {
	e := &transport.StatusError{Service: "hub", Status: status, Name: header.Get("iothub-errorcode"),
		TrackingID: header.Get("x-ms-request-id")}
	var outer struct{ Message, ExceptionMessage string }
	if json.Unmarshal(body, &outer) == nil {
		var inner struct {
			ErrorCode           json.Number
			TrackingID, Message string
		}
		if json.Unmarshal([]byte(outer.Message), &inner) == nil {
			e.Code, _ = strconv.Atoi(string(inner.ErrorCode))
			e.Message = inner.Message
			e.TrackingID = cmp.Or(inner.TrackingID, e.TrackingID)
		} else {
			e.Message = outer.Message
			if coded, found := strings.CutPrefix(outer.Message, "ErrorCode:"); found {
				name, text, _ := strings.Cut(coded, ";")
				e.Name, e.Message = cmp.Or(e.Name, name), text
			}
			if _, id, found := strings.Cut(outer.ExceptionMessage, "Tracking ID:"); found {
				e.TrackingID = cmp.Or(id, e.TrackingID)
			}
		}
	}
	e.Name, e.Message, e.TrackingID = scrub.Peer(e.Name), scrub.Peer(e.Message), scrub.Peer(e.TrackingID)
	if e.Code == 0 {
		e.Code = CodeOf(e.Name)
	}
	if e.Code/1000 != status && e.Code != 0 && codeTable[e.Code].code == 0 {
		e.Code = 0 // not a hub's code
	}
	if e.Name == "" {
		e.Name = codeTable[e.Code].name
	}
	v := VerdictOf(e)
	if e.Name == "" && IsPage(header) {
		switch {
		case v.About == statuscode.Identity, v.About == statuscode.Message && v.Kind != transport.TooLarge,
			status == http.StatusForbidden: // a hub's bare 403 is about a quota
			v = NoHub
		default:
			v.Reason += "; the answer is a web page, so it may be a proxy's"
		}
	}
	if v.Reason == noHub {
		e.Service = "peer"
	}
	e.Meaning = v.Reason
	return e, v
}

// IsPage reports whether an answer is a web page, which no API of a hub or of blob storage gives.
func IsPage(header http.Header) bool {
	of, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	return strings.EqualFold(strings.TrimSpace(of), "text/html")
}
