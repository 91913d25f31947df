package hubdata

import (
	"fmt"
)

// ServiceError is an error that the service reports to a back end, and in answers to twin requests.
type ServiceError struct {
	// Code has six digits: the HTTP status, and a number within it. For example, 404103 means that the
	// device is not online, and 504101 that it did not answer in time.
	Code int
	// Name is the service's name of the code.
	Name string
	// Message is text for humans.
	Message string
	// TrackingID identifies the occurrence.
	TrackingID string
	// Err is the cause, if it has a value of its own: testbroker.ErrNotFound for an unknown device or
	// module.
	Err error
}

// Status returns the HTTP status of the code.
func (e *ServiceError) Status() int { return e.Code / 1000 }

// Error returns the code, its name and the message.
func (e *ServiceError) Error() string {
	return fmt.Sprintf("testbroker: %d %s: %s", e.Code, e.Name, e.Message)
}

// Unwrap returns Err.
func (e *ServiceError) Unwrap() error { return e.Err }

// AMQPError is an AMQP error, for example the error of a rejected message.
type AMQPError struct{ Condition, Description string }

// Error returns the condition and the description.
func (e AMQPError) Error() string {
	if e.Description == "" {
		return e.Condition
	}
	return e.Condition + ": " + e.Description
}
