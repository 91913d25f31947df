package fault

import (
	"maps"
	"slices"
)

// Faults of a request for a certificate, which a device sends to its hub over MQTT. Each happens to
// requests.
const (
	// RefuseCertificate does not execute the request: the answer has Status, by default 429, with
	// ErrorCode, Description and RetryAfter.
	RefuseCertificate Kind = iota + 340
	// DropBeforeCertificate cuts the connection with RST. The request is not executed.
	DropBeforeCertificate
	// DropAfterCertificate accepts the request and cuts the connection with RST instead of answering.
	// The answers are sent over the next connection with a subscription to them.
	DropAfterCertificate
	// SwallowCertificate issues the certificate and never answers. The same request sent again is
	// answered.
	SwallowCertificate
	// SlowCertificate accepts the request and issues the certificate after Delay.
	SlowCertificate
	// DuplicateCertificate sends each answer twice.
	DuplicateCertificate
	// MisnameCertificate answers with the id of another request.
	MisnameCertificate
	// GarbleCertificate issues the certificate and answers with Bytes as the body, by default the
	// beginning of a JSON object.
	GarbleCertificate
	// WrongCertificate answers with another certificate as the first of the chain: Bytes, or by
	// default one with the right name for a key that the device does not have.
	WrongCertificate
	// ForgetCertificate issues the certificate and refuses it at connects, as if it had been revoked.
	ForgetCertificate
)

var certificateKinds = map[Kind]row{
	RefuseCertificate:     {"RefuseCertificate", mqtt, "Description Status ErrorCode RetryAfter", Fault{Status: 429}},
	DropBeforeCertificate: {"DropBeforeCertificate", mqtt, "", none},
	DropAfterCertificate:  {"DropAfterCertificate", mqtt, "", none},
	SwallowCertificate:    {"SwallowCertificate", mqtt, "", none},
	SlowCertificate:       {"SlowCertificate", mqtt, "Delay", none},
	DuplicateCertificate:  {"DuplicateCertificate", mqtt, "", none},
	MisnameCertificate:    {"MisnameCertificate", mqtt, "", none},
	GarbleCertificate:     {"GarbleCertificate", mqtt, "Bytes", none},
	WrongCertificate:      {"WrongCertificate", mqtt, "Bytes", none},
	ForgetCertificate:     {"ForgetCertificate", mqtt, "", none},
}

// CertificateKinds returns every kind of fault that happens to requests for certificates at a hub,
// in a fixed order.
func CertificateKinds() []Kind { return slices.Sorted(maps.Keys(certificateKinds)) }
