package dpsdata

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

// Registration is the service's record of a device that has registered.
type Registration struct {
	// ID is the registration id as the device sent it.
	ID string
	// EnrollmentID is the id of the enrollment or of the group.
	EnrollmentID string
	// Status is "assigned", "failed" or "disabled".
	Status string
	// Substatus tells an initial assignment from a move: "initialAssignment", "deviceDataMigrated" or
	// "deviceDataReset".
	Substatus string
	// Hub and DeviceID are the assignment; empty if there never was one.
	Hub, DeviceID string
	// ErrorCode and ErrorMessage are set if Status is "failed".
	ErrorCode    int
	ErrorMessage string
	// Payload is the custom payload for the device; nil if there is none.
	Payload json.RawMessage
	// Created and Updated are times of the service's clock.
	Created, Updated time.Time
	// Moves is how often the device has changed its hub.
	Moves int
}

// Operation is what a request asks for.
type Operation uint8

const (
	// OperationAny means all operations.
	OperationAny Operation = iota
	// OperationRegister starts a registration.
	OperationRegister
	// OperationPoll asks for the state of a registration.
	OperationPoll
	// OperationLookup asks for the record of an earlier registration.
	OperationLookup
	// OperationCheckOnboarding asks for an update before the first registration,
	// OperationCheckUpdate after it.
	OperationCheckOnboarding
	OperationCheckUpdate
	// OperationReportUpdate reports on an update.
	OperationReportUpdate
)

var operationNames = [...]string{"any", "register", "poll", "lookup", "onboarding check", "update check",
	"update report"}

// String returns the name of the operation.
func (o Operation) String() string {
	if int(o) < len(operationNames) {
		return operationNames[o]
	}
	return fmt.Sprintf("Operation(%d)", uint8(o))
}

// Request is a request of a device, as recorded by the service.
type Request struct {
	Operation Operation
	// RegistrationID is the id as the device sent it, verified or not.
	RegistrationID string
	// OperationID is the id that an OperationPoll names, or that the answer to an OperationRegister
	// has.
	OperationID string
	// APIVersion is the version that the client states.
	APIVersion string
	// Body is the body of the request, and Payload and CSR are its parts: nil if absent.
	Body    []byte
	Payload json.RawMessage
	CSR     []byte
	// Protocol and Connection say how it came. Connections are counted from 1.
	Protocol   hubdata.Protocol
	Connection uint64
	// Received is a time of the service's clock.
	Received time.Time
	// Status is the status of the answer; 202 while the registration is in progress. 401 without an
	// ErrorCode is the challenge to a TPM, over HTTPS.
	Status int
	// ErrorCode is the service's six-digit code of a refused request; zero otherwise. It is negative
	// if a fault has left the code out.
	ErrorCode int
	// RetryAfter is the delay that the answer asks for, as sent; empty if there is none.
	RetryAfter string
}
