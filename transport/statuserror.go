package transport

import "strconv"

// StatusError is a refusal with an HTTP status: by a hub, over HTTPS or in a reply about the twin;
// by blob storage; by the provisioning service, over any protocol; by a server that refuses the
// upgrade to WebSocket; by an HTTP proxy. It is the cause of an *Error, which has the Kind;
// errors.As finds it.
//
// Texts of the peer are cut to 1 KB, and contain no secrets and no control characters.
type StatusError struct {
	// Service is the source of the answer: "hub", "storage", "provisioning service", "WebSocket
	// server", "proxy", or "daemon" for that of an edge device; "peer" if an answer to a request for
	// the hub is none of a hub.
	Service string
	// Status is the HTTP status, such as 404.
	Status int
	// Code is the numeric code of a hub or of the provisioning service, such as 404001; 0 if there is
	// none.
	Code int
	// Name is the service's name for the failure, such as "DeviceNotFound" of a hub or
	// "AuthenticationFailed" of storage. Empty if there is none, and in replies about the twin.
	Name string
	// Meaning explains status and code in a few words. It may be empty.
	Meaning string
	// Message is the service's text. Empty if there is none, and on boards.
	Message string
	// TrackingID is the service's id of the request, which its support asks for. It may be empty.
	TrackingID string
	// Hint says what may help. It may be empty.
	Hint string
}

// Error returns the known fields, in their order.
func (e *StatusError) Error() string {
	text := e.Service + " answered " + strconv.Itoa(e.Status)
	if e.Meaning != "" {
		text += " (" + e.Meaning + ")"
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
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// HTTPStatusCode returns Status, for package httpretry.
func (e *StatusError) HTTPStatusCode() int { return e.Status }
