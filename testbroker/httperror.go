package testbroker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// An httpError is why a request is refused.
type httpError struct {
	code  int // of the service: the status and three digits
	text  string
	allow string // methods, for 405
}

func httpErrorf(code int, format string, args ...any) *httpError {
	return &httpError{code: code, text: fmt.Sprintf(format, args...)}
}

// Error names the code and tells what is wrong.
func (e *httpError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.code, errorName(e.code), e.text)
}

// status is that of the answer.
func (e *httpError) status() int { return e.code / 1000 }

// fail is the answer to a request that is refused, in the form that the service gives its errors.
func (q *httpRequest) fail(e *httpError) httpAnswer {
	if q.route != nil && q.route.fails != nil {
		return q.route.fails(q, e)
	}
	h := q.hub
	tracking := fmt.Sprintf("%d-%d", q.c.number, q.conn.front.refusals.Add(1))
	name := errorName(e.code)
	text := strings.ToValidUTF8(e.text, "?")
	var outer struct{ Message, ExceptionMessage string }
	if h.http.TextErrors || q.route != nil && q.route.kind.textErrors() {
		outer.Message = "ErrorCode:" + name + ";" + text
		outer.ExceptionMessage = "Tracking ID:" + tracking
	} else {
		inner, _ := json.Marshal(struct {
			ErrorCode    int    `json:"errorCode"`
			TrackingID   string `json:"trackingId"`
			Message      string `json:"message"`
			TimestampUTC string `json:"timestampUtc"`
		}{e.code, tracking, text, h.now().UTC().Format(timeLayout)})
		outer.Message = string(inner)
	}
	body, _ := json.Marshal(outer) // neither can fail: there are but strings and a number
	header := http.Header{
		"Content-Type":     {"application/json; charset=utf-8"},
		"iothub-errorcode": {name},
		"x-ms-request-id":  {tracking},
	}
	if e.allow != "" {
		header.Set("Allow", e.allow)
	}
	return httpAnswer{status: e.status(), header: header, body: body}
}

// asServiceError is an error as it goes over HTTP.
func asServiceError(err error) *httpError {
	var refused *httpError
	var e *ServiceError
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &e):
		return httpErrorf(e.Code, "%s", e.Message)
	case errors.Is(err, ErrClosed):
		return httpErrorf(503001, "%v", err)
	}
	return httpErrorf(codeServerError, "%v", err)
}
