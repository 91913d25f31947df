package updatedata

import (
	"maps"
	"slices"
)

// Code is the code of a refusal, which answers have as info.aduErrorCode.
type Code string

// The codes of the service.
const (
	NotLinked            Code = "UPDATE_ACCOUNT_NOT_LINKED"
	OutdatedAgentInfo    Code = "OUTDATED_AGENT_INFO"
	UnknownAgentInfo     Code = "UNKNOWN_AGENT_INFO_VERSION"
	OutdatedConfig       Code = "OUTDATED_SERVICE_CONFIG"
	Throttled            Code = "THROTTLED"
	TooManyRequests      Code = "TOO_MANY_REQUESTS"
	Unavailable          Code = "UPSTREAM_UNAVAILABLE"
	InternalError        Code = "INTERNAL_SERVER_ERROR"
	ReportConflict       Code = "REPORT_CONFLICT"
	InvalidRequest       Code = "INVALID_REQUEST"
	UnknownWorkflow      Code = "UNKNOWN_WORKFLOW_ID"
	UnsupportedVersion   Code = "UNSUPPORTED_API_VERSION"
	UnsupportedProfile   Code = "UNSUPPORTED_AGENT_PROFILE"
	InvalidCompatibility Code = "INVALID_COMPATIBILITY_PROPERTIES"
)

// numbers are the six-digit codes: the status and three digits.
var numbers = map[Code]int{
	NotLinked: 409000, OutdatedAgentInfo: 400004, UnknownAgentInfo: 400004, OutdatedConfig: 400004, Throttled: 429000,
	TooManyRequests: 429001, Unavailable: 503000, InternalError: 500000, ReportConflict: 409000, InvalidRequest: 400000,
	UnknownWorkflow: 400000, UnsupportedVersion: 400001, UnsupportedProfile: 400002, InvalidCompatibility: 400002,
}

// Codes returns all codes of the service, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(numbers)) }

// Number returns the six-digit code that comes with a code, of which the first three digits are the
// status; zero for an unknown code.
func (c Code) Number() int { return numbers[c] }
