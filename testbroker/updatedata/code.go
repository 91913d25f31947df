package updatedata

import (
	"maps"
	"slices"
)

// Code is the code of a refusal, which answers have as info.aduErrorCode.
type Code string

// The codes of the service.
const (
	CodeNotLinked            Code = "UPDATE_ACCOUNT_NOT_LINKED"
	CodeOutdatedAgentInfo    Code = "OUTDATED_AGENT_INFO"
	CodeUnknownAgentInfo     Code = "UNKNOWN_AGENT_INFO_VERSION"
	CodeOutdatedConfig       Code = "OUTDATED_SERVICE_CONFIG"
	CodeThrottled            Code = "THROTTLED"
	CodeTooManyRequests      Code = "TOO_MANY_REQUESTS"
	CodeUnavailable          Code = "UPSTREAM_UNAVAILABLE"
	CodeInternalError        Code = "INTERNAL_SERVER_ERROR"
	CodeReportConflict       Code = "REPORT_CONFLICT"
	CodeInvalidRequest       Code = "INVALID_REQUEST"
	CodeUnknownWorkflow      Code = "UNKNOWN_WORKFLOW_ID"
	CodeUnsupportedVersion   Code = "UNSUPPORTED_API_VERSION"
	CodeUnsupportedProfile   Code = "UNSUPPORTED_AGENT_PROFILE"
	CodeInvalidCompatibility Code = "INVALID_COMPATIBILITY_PROPERTIES"
)

// numbers are the six-digit codes: the status and three digits.
var numbers = map[Code]int{
	CodeNotLinked: 409000, CodeOutdatedAgentInfo: 400004, CodeUnknownAgentInfo: 400004, CodeOutdatedConfig: 400004,
	CodeThrottled:       429000,
	CodeTooManyRequests: 429001, CodeUnavailable: 503000, CodeInternalError: 500000, CodeReportConflict: 409000,
	CodeInvalidRequest:  400000,
	CodeUnknownWorkflow: 400000, CodeUnsupportedVersion: 400001, CodeUnsupportedProfile: 400002,
	CodeInvalidCompatibility: 400002,
}

// Codes returns all codes of the service, sorted.
func Codes() []Code { return slices.Sorted(maps.Keys(numbers)) }

// Number returns the six-digit code that comes with a code, of which the first three digits are the
// status; zero for an unknown code.
func (c Code) Number() int { return numbers[c] }
