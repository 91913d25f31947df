package fault

import (
	"maps"
	"slices"
)

// Faults of a request to a provisioning service. Each happens to requests of the kind Route, which
// is [RouteRegister], [RouteOperation], [RouteUpdateCheck] or [RouteUpdateReport], or to all if
// Route is [RouteAny]. At a hub they never happen. Faults of the contents of answers, except
// WrongRetryAfter, do not happen to refusals.
const (
	// RefuseProvisioning does not execute the request: the answer has Status, by default 429, with
	// ErrorCode, Description and RetryAfter.
	RefuseProvisioning Kind = iota + 400
	// DropBeforeProvisioning cuts the connection with RST. The request is not executed.
	DropBeforeProvisioning
	// DropAfterProvisioning executes the request and cuts the connection with RST instead of
	// answering.
	DropAfterProvisioning
	// SwallowProvisioning executes the request and never answers.
	SwallowProvisioning
	// SlowProvisioning executes the request and answers after Delay.
	SlowProvisioning
	// DuplicateProvisioning answers twice.
	DuplicateProvisioning
	// MisnameProvisioning answers with the id of another request: $rid over MQTT, the correlation id
	// over AMQP.
	MisnameProvisioning
	// AnswerBeforePuback sends the answer before the PUBACK of the request.
	AnswerBeforePuback
	// ReorderProperties sends retry-after before $rid, and a property without a meaning before both.
	ReorderProperties
	// GarbleProvisioning answers with Bytes as the body, by default the beginning of a JSON object; an
	// answer about updates by default with its first half.
	GarbleProvisioning
	// OmitOperationID answers without the operation id.
	OmitOperationID
	// WrongRetryAfter answers with Text as the delay, unchecked: a number, a date, anything. Empty
	// means that the answer asks for no delay.
	WrongRetryAfter
	// WrongStatus answers with the registration status Text. With "assigning" the registration stays
	// in progress; other answers are final and have a state without an assignment. "failed" comes with
	// ErrorCode, by default 400207, and Description.
	WrongStatus
	// WrongDeviceID, WrongHub and WrongProfile answer with Text as the device id, the assigned hub and
	// the connection profile. They happen to answers with an assignment.
	WrongDeviceID
	WrongHub
	WrongProfile
	// WrongChain answers with another certificate as the first of the issued chain: Bytes, or by
	// default a certificate with the right name for a key that the device does not have. It happens to
	// answers with a chain.
	WrongChain
	// WrongChallenge challenges a TPM with Bytes, or by default with a key that is encrypted for
	// another TPM. Over AMQP it happens to SASL, as a request of the kind [RouteRegister].
	WrongChallenge
	// RepeatChallenge answers a register of a device that has met the challenge to its TPM with
	// another challenge.
	RepeatChallenge
	// WrongAuthenticationKey answers with Bytes, or by default with a key that is encrypted for
	// another TPM, as the key for the hub. It happens to answers with an assignment of a device with a
	// TPM.
	WrongAuthenticationKey
)

var provisioningKinds = map[Kind]row{
	RefuseProvisioning: {"RefuseProvisioning", all, "Description Status ErrorCode RetryAfter Route",
		Fault{Status: 429}},
	DropBeforeProvisioning: {"DropBeforeProvisioning", all, "Route", none},
	DropAfterProvisioning:  {"DropAfterProvisioning", all, "Route", none},
	SwallowProvisioning:    {"SwallowProvisioning", all, "Route", none},
	SlowProvisioning:       {"SlowProvisioning", all, "Route Delay", none},
	DuplicateProvisioning:  {"DuplicateProvisioning", mqtt | amqp, "Route", none},
	MisnameProvisioning:    {"MisnameProvisioning", mqtt | amqp, "Route", none},
	AnswerBeforePuback:     {"AnswerBeforePuback", mqtt, "Route", none},
	ReorderProperties:      {"ReorderProperties", mqtt, "Route", none},
	GarbleProvisioning:     {"GarbleProvisioning", all, "Route Bytes", none},
	OmitOperationID:        {"OmitOperationID", all, "Route", none},
	WrongRetryAfter:        {"WrongRetryAfter", all, "Route Text", none},
	WrongStatus:            {"WrongStatus", all, "Description ErrorCode Route Text", none},
	WrongDeviceID:          {"WrongDeviceID", all, "Route Text", none},
	WrongHub:               {"WrongHub", all, "Route Text", none},
	WrongProfile:           {"WrongProfile", all, "Route Text", none},
	WrongChain:             {"WrongChain", all, "Route Bytes", none},
	WrongChallenge:         {"WrongChallenge", amqp | http, "Route Bytes", none},
	RepeatChallenge:        {"RepeatChallenge", http, "Route", none},
	WrongAuthenticationKey: {"WrongAuthenticationKey", amqp | http, "Route Bytes", none},
}

// ProvisioningKinds returns every kind of fault that happens only at a provisioning service, in a
// fixed order.
func ProvisioningKinds() []Kind { return slices.Sorted(maps.Keys(provisioningKinds)) }
