// Package status is what the statuses mean that a hub answers requests about the twin with, over
// whatever protocol. It is of the core: boards link it.
package status

import (
	"strconv"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// Error is a request that the hub refused: the cause of the *transport.Error in its Reply,
// reachable with errors.As.
type Error struct {
	// Status is the hub's, 400 to 599 of HTTP.
	Status int
	// Code is the service's own number, 0 if it gave none.
	Code int
	// Message is the service's text as it stands in its JSON, cut off at 200 bytes, without secrets
	// and control characters. Empty if it gave none, and on boards.
	Message string
}

// Error gives status, code and message.
func (e *Error) Error() string {
	text := "status " + strconv.Itoa(e.Status)
	if e.Code != 0 {
		text += ", error " + strconv.Itoa(e.Code)
	}
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// table has the statuses with a meaning of their own. ("IoT Hub error codes"; RFC 9110 section 15)
var table = [...]struct {
	status int
	kind   transport.Kind
}{
	{400, transport.Invalid},
	{401, transport.Unauthorized},
	{403, transport.Forbidden},
	{404, transport.NotFound},
	{408, transport.Timeout},
	{409, transport.Conflict},
	{412, transport.Conflict},
	{413, transport.TooLarge},
	{429, transport.Throttled},
	{501, transport.Unsupported},
	{504, transport.Timeout},
}

// KindOf says what a status means. Good reports that it is no error.
func KindOf(status int) (kind transport.Kind, good bool) {
	if status >= 200 && status < 300 {
		return transport.Unknown, true
	}
	for _, row := range table {
		if row.status == status {
			return row.kind, false
		}
	}
	switch {
	case status >= 500 && status < 600:
		return transport.Unavailable, false
	case status >= 400 && status < 500:
		return transport.Invalid, false
	}
	return transport.Protocol, false
}

// maxMessage is where a message is cut off.
const maxMessage = 200

// Refusal is the error of a request that was answered with a status that is not good. body is the
// hub's, JSON or not.
func Refusal(op transport.Op, proto string, status int, body []byte) *transport.Error {
	kind, _ := KindOf(status)
	e := &Error{Status: status}
	for _, name := range [...]string{"errorCode", "ErrorCode"} {
		if text, ok := jsonscan.Member(body, name); ok {
			n, _ := jsonscan.Int(unquoted(text))
			e.Code = int(n)
		}
	}
	for _, name := range [...]string{"message", "Message"} {
		if text, ok := jsonscan.Member(body, name); ok {
			text = unquoted(text)
			e.Message = peerText(string(text[:min(len(text), maxMessage)]))
		}
	}
	return &transport.Error{Kind: kind, Op: op, Proto: proto, Err: e}
}

// unquoted is a JSON string as it stands between its quotes; other values stay.
func unquoted(text []byte) []byte {
	if len(text) >= 2 && text[0] == '"' {
		return text[1 : len(text)-1]
	}
	return text
}
