package hub

import (
	"cmp"
	"encoding/json"
	"fmt"
)

// ServiceError is an error that the service reports to a back end, and in answers to twin requests.
type ServiceError struct {
	// Code has six digits: the HTTP status, and a number within it. For example, 404103 means that the
	// device is not online, and 504101 that it did not answer in time.
	Code int
	// Message is text for humans.
	Message string
	// TrackingID identifies the occurrence.
	TrackingID string
}

// Status returns the HTTP status of the code.
func (e *ServiceError) Status() int { return e.Code / 1000 }

// Name returns the service's name of the code.
func (e *ServiceError) Name() string { return ErrorName(e.Code) }

// Error returns the code, its name and the message.
func (e *ServiceError) Error() string {
	return fmt.Sprintf("testbroker: %d %s: %s", e.Code, e.Name(), e.Message)
}

// Is makes errors.Is(err, [ErrNotFound]) true for an unknown device or module.
func (e *ServiceError) Is(target error) bool {
	return target == ErrNotFound && (e.Code == CodeDeviceNotFound || e.Code == codeModuleNotFound)
}

// Error codes of twins and methods. See errorNames.
const (
	CodeInvalidOperation   = 400003
	CodeArgumentInvalid    = 400004
	codeDisplaced          = 400027
	CodeDeviceNotFound     = 404001
	codeModuleNotFound     = 404010
	codeDeviceNotOnline    = 404103
	CodePreconditionFailed = 412001
	codeMessageTooLarge    = 413001
	codeThrottled          = 429001
	CodeServerError        = 500001
	codeBadDeviceResponse  = 502000
	codeGatewayTimeout     = 504101
)

// declared returns the error of a fault that refuses.
func (h *Hub) declared(f *Fault) *ServiceError {
	code := f.ErrorCode
	if code == 0 {
		code = CommonCode(f.Status)
	}
	return h.ServiceError(code, "%s", cmp.Or(f.Description, "fault "+f.Kind.String()))
}

func (h *Hub) ServiceError(code int, format string, args ...any) *ServiceError {
	return &ServiceError{code, fmt.Sprintf(format, args...), fmt.Sprintf("%032X", h.tracked.Add(1))}
}

// errorBody returns the error as the body of an answer to a twin request.
func (h *Hub) errorBody(e *ServiceError) []byte {
	body, err := json.Marshal(struct {
		ErrorCode    int    `json:"errorCode"`
		TrackingID   string `json:"trackingId"`
		Message      string `json:"message"`
		TimestampUTC string `json:"timestampUtc"`
	}{e.Code, e.TrackingID, e.Message, h.Now().UTC().Format(TimeLayout)})
	if err != nil {
		panic(err) // the struct always encodes as JSON
	}
	return body
}
