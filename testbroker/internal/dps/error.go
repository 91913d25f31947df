package dps

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// Codes of the service.
const (
	CodeBadRequest       = 400004
	codeAllocationFailed = 400207
	codeNoHub            = 400208
	CodeUnauthorized     = 401002
	CodeNotEnrolled      = 404201
	codeNoOperation      = 404000
	CodeConflict         = 409000
	CodePrecondition     = 412000
	codeThrottled        = 429001
	codeServerError      = 500001
)

// An Error is a refusal of a request.
type Error struct {
	Code       int // the status and three digits; negative = not told
	Text       string
	Update     updatedata.Code // of an update service; empty = none
	Target     string          // the member of the request that the update service refuses
	RetryAfter time.Duration   // zero = none
	status     int             // zero = that of the code
}

func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Error returns the code and the text.
func (e *Error) Error() string { return fmt.Sprintf("%d: %s", e.Code, e.Text) }

// Status returns the HTTP status.
func (e *Error) Status() int { return cmp.Or(e.status, e.Code/1000) }

// ErrorBody returns the JSON of an error.
func (s *Service) ErrorBody(e *Error) []byte {
	s.mu.Lock()
	s.tracked++
	n := s.tracked
	s.mu.Unlock()
	return document.JSON(struct {
		ErrorCode    int       `json:"errorCode,omitempty"`
		TrackingID   string    `json:"trackingId"`
		Message      string    `json:"message"`
		Info         errorInfo `json:"info"`
		TimestampUTC string    `json:"timestampUtc"`
	}{max(e.Code, 0), fmt.Sprintf("dps-%d", n), strings.ToValidUTF8(e.Text, "?"), errorInfo{e.Update, e.Target},
		document.TimeText(s.Net.Now())})
}

// An errorInfo is what an error tells besides its code, at present of update services alone.
type errorInfo struct {
	Code   updatedata.Code `json:"aduErrorCode,omitempty"`
	Target string          `json:"aduErrorTarget,omitempty"`
}
