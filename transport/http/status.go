package http

import (
	"strconv"

	"github.com/hubline-iot/hubline/internal/hubstatus"
	"github.com/hubline-iot/hubline/internal/statuscode"
)

// StatusError is an answer of the hub's that is no success: the cause of a *transport.Error,
// reachable with errors.As.
type StatusError struct {
	// Status is HTTP's, such as 404.
	Status int
	// Code is the hub's own, such as 404001; 0 when it gave none. Its first three digits are a status.
	Code int
	// Name is the hub's name for the code, such as "DeviceNotFound"; empty when it gave none.
	Name string
	// Message is the hub's text, at most 1 KB of it; signatures in it are hidden.
	Message string
	// TrackingID is what the service's support asks for; empty when the hub gave none.
	TrackingID string
}

// Error gives status, meaning, code, name, text and tracking id.
func (e *StatusError) Error() string {
	text := "HTTP " + strconv.Itoa(e.Status)
	if v := verdictOf(e); v.About != statuscode.Fine {
		text += " (" + v.Reason + ")"
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
	return text
}

// verdictOf is what an answer means.
func verdictOf(e *StatusError) hubstatus.Verdict { return (*hubstatus.Answer)(e).Verdict() }
