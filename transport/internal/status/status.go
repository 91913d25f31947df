// Package status is what the statuses mean that a hub answers requests about the twin with, over
// whatever protocol. It is of the core: boards link it.
package status

import (
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

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
	e := &transport.StatusError{Service: "hub", Status: status}
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
