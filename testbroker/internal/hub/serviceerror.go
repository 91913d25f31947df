package hub

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/hubline-iot/hubline/testbroker/fault"
	"github.com/hubline-iot/hubline/testbroker/hubdata"
)

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
func (h *Hub) declared(f *fault.Fault) *hubdata.ServiceError {
	code := f.ErrorCode
	if code == 0 {
		code = CommonCode(f.Status)
	}
	return h.ServiceError(code, "%s", cmp.Or(f.Description, "fault "+f.Kind.String()))
}

func (h *Hub) ServiceError(code int, format string, args ...any) *hubdata.ServiceError {
	e := &hubdata.ServiceError{Code: code, Name: ErrorName(code), Message: fmt.Sprintf(format, args...),
		TrackingID: fmt.Sprintf("%032X", h.tracked.Add(1))}
	if code == CodeDeviceNotFound || code == codeModuleNotFound {
		e.Err = ErrNotFound
	}
	return e
}

// errorBody returns the error as the body of an answer to a twin request.
func (h *Hub) errorBody(e *hubdata.ServiceError) []byte {
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
