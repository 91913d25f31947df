// Package status is what the statuses mean that a hub answers requests about the twin with, over
// whatever protocol. It is of the core: boards link it.
package status

import (
	"strconv"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/statuscode"
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

// KindOf returns what a status means in a reply about the twin. Good reports that it is no error.
func KindOf(status int) (kind transport.Kind, good bool) {
	m := statuscode.Of(status, statuscode.Twin)
	return m.Kind, m.About == statuscode.Fine
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
