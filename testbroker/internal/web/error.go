package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/hubline-iot/hubline/testbroker/hubdata"
	"github.com/hubline-iot/hubline/testbroker/internal/document"
	"github.com/hubline-iot/hubline/testbroker/internal/hub"
)

// An Error is a refusal of a request.
type Error struct {
	Code  int // the service's code: the status and three digits
	Text  string
	allow string // allowed methods, for 405
}

func Errorf(code int, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Error returns the code, its name and the text.
func (e *Error) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Code, hub.ErrorName(e.Code), e.Text)
}

// Status returns the HTTP status.
func (e *Error) Status() int { return e.Code / 1000 }

// Fail returns the answer to a refused request, in the service's error format.
func (q *Request) Fail(e *Error) Answer {
	if q.route != nil && q.route.Fails != nil {
		return q.route.Fails(q, e)
	}
	h := q.Hub
	tracking := fmt.Sprintf("%d-%d", q.C.Number, q.Conn.Front.Refusals.Add(1))
	name := hub.ErrorName(e.Code)
	text := strings.ToValidUTF8(e.Text, "?")
	var outer struct{ Message, ExceptionMessage string }
	if h.HTTP.TextErrors || q.route != nil && textErrors(q.route.Kind) {
		outer.Message = "ErrorCode:" + name + ";" + text
		outer.ExceptionMessage = "Tracking ID:" + tracking
	} else {
		inner, _ := json.Marshal(struct {
			ErrorCode    int    `json:"errorCode"`
			TrackingID   string `json:"trackingId"`
			Message      string `json:"message"`
			TimestampUTC string `json:"timestampUtc"`
		}{e.Code, tracking, text, document.TimeText(h.Now())})
		outer.Message = string(inner)
	}
	body, _ := json.Marshal(outer) // cannot fail: only strings and a number
	header := http.Header{
		"Content-Type":     {"application/json; charset=utf-8"},
		"iothub-errorcode": {name},
		"x-ms-request-id":  {tracking},
	}
	if e.allow != "" {
		header.Set("Allow", e.allow)
	}
	return Answer{Status: e.Status(), Header: header, Body: body}
}

// AsServiceError converts an error for HTTP.
func AsServiceError(err error) *Error {
	var refused *Error
	var e *hubdata.ServiceError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &e):
		return Errorf(e.Code, "%s", e.Message)
	case errors.Is(err, hub.ErrClosed):
		return Errorf(503001, "%v", err)
	}
	return Errorf(hub.CodeServerError, "%v", err)
}
