package dpsupdate

import (
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/provisioning"
	"github.com/hubline-iot/hubline/transport"
)

// A remedy is what Check does about a refusal.
type remedy uint8

const (
	none              remedy = iota // it fails
	withoutETags                    // it asks again without both etags
	withoutConfigETag               // it asks again without the etag of the service's configuration
	noService                       // there is no update service, and so no update
)

// row is the meaning of one of the update service's codes.
type row struct {
	code   string
	number int // the same in an answer to a check without the code; 0: the status says enough
	kind   transport.Kind
	remedy remedy
}

// codes are the codes of the update service.
var codes = [...]row{
	{"UPDATE_ACCOUNT_NOT_LINKED", 409000, transport.NotFound, noService},

	{"OUTDATED_AGENT_INFO", 400004, transport.Invalid, withoutETags},
	{"UNKNOWN_AGENT_INFO_VERSION", 0, transport.Invalid, withoutETags},
	{"OUTDATED_SERVICE_CONFIG", 0, transport.Invalid, withoutConfigETag},

	{"THROTTLED", 0, transport.Throttled, none},
	{"TOO_MANY_REQUESTS", 0, transport.Throttled, none},
	{"UPSTREAM_UNAVAILABLE", 0, transport.Unavailable, none},
	{"INTERNAL_SERVER_ERROR", 0, transport.Unavailable, none},

	{"REPORT_CONFLICT", 0, transport.Conflict, none},
	{"UNKNOWN_WORKFLOW_ID", 0, transport.NotFound, none},
	{"INVALID_REQUEST", 0, transport.Invalid, none},
	{"INVALID_COMPATIBILITY_PROPERTIES", 0, transport.Invalid, none},
	{"UNSUPPORTED_API_VERSION", 0, transport.Unsupported, none},
	{"UNSUPPORTED_AGENT_PROFILE", 0, transport.Unsupported, none},
}

// unlisted stands for a code that the table does not have: the number or the status counts.
var unlisted row

// find returns the row of the first of these codes that the table has. The message of an answer may
// be a code, or prose.
func find(names ...string) *row {
	for _, name := range names {
		for i := range codes {
			if codes[i].code == name {
				return &codes[i]
			}
		}
	}
	return &unlisted
}

// findNumber returns the row of a number.
func findNumber(number int) *row {
	for i := range codes {
		if codes[i].number == number && number != 0 {
			return &codes[i]
		}
	}
	return &unlisted
}

// refusal returns the failure that an answer is, nil for a success, and the remedy of a check for
// it.
func refusal(a *provisioning.Answer, check bool) (*transport.Error, remedy) {
	failure := a.Failure()
	if failure == nil {
		return nil, none
	}
	status, _ := failure.Err.(*transport.StatusError)
	info := jsonscan.Value(a.Body, "info")
	code := jsonscan.TextOf(info, "aduErrorCode")
	r := find(code, jsonscan.TextOf(a.Body, "message"), a.ErrorCode)
	if r == &unlisted && check {
		r = findNumber(status.Code)
	}
	if r != &unlisted {
		failure.Kind, code = r.kind, r.code
	}
	status.Name = word(code)
	if status.Message == status.Name {
		status.Message = ""
	}
	if target := word(jsonscan.TextOf(info, "aduErrorTarget")); target != "" {
		status.Meaning = "about " + target
	}
	return failure, r.remedy
}

// isVerdict reports whether a refusal is about the report. The service gives such a refusal a name
// or a number; without one, a proxy on the way may have answered. A proxy can only judge the size.
func isVerdict(e *transport.Error) bool {
	status, _ := e.Err.(*transport.StatusError)
	if status.Name != "" || e.Kind == transport.TooLarge {
		return true
	}
	return status.Code != 0 && e.Kind != transport.NotFound // 404201: the device is not enrolled
}

// maxWord bounds a name of the service in an error.
const maxWord = 100

// word returns a name of the service as an error may show it, empty if it is more than a name.
func word(s string) string {
	for i := range len(s) {
		if c := s[i] | ' '; !('a' <= c && c <= 'z' || '0' <= s[i] && s[i] <= '9' || s[i] == '_' || s[i] == '.' ||
			s[i] == '[' || s[i] == ']' || s[i] == '/') {
			return ""
		}
	}
	if len(s) > maxWord {
		return ""
	}
	return s
}
