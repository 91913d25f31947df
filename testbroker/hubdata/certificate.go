package hubdata

import "time"

// CertificateRequest is a device's request for a certificate, with the hub's first answer.
type CertificateRequest struct {
	DeviceID string
	// RequestID is the device's id of the request. Replace is the id of the request that it replaces,
	// or "*"; empty: none.
	RequestID, Replace string
	// Status is that of the first answer: 202 for an accepted request, 200 for the repetition of one
	// that has its certificate. Code is the six-digit code of a refusal; 0 without one.
	Status, Code int
	// Received is when the request arrived, by the hub's clock, and Connection the number of its
	// connection.
	Received   time.Time
	Connection uint64
}
