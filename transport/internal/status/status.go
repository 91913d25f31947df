// Package status maps the status of a hub's reply to a twin request, over any protocol. Boards link
// it.
package status

import (
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// KindOf returns the Kind of a status in a twin reply. good reports a success.
func KindOf(status int) (kind transport.Kind, good bool) {
	m := statuscode.Of(status, statuscode.Twin)
	return m.Kind, m.About == statuscode.Fine
}

// maxMessage is the length after which a message is cut off.
const maxMessage = 200

// Refusal returns the error of an unsuccessful reply. body is the hub's, JSON or not.
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
			e.Message = PeerText(string(text[:min(len(text), maxMessage)]))
		}
	}
	return &transport.Error{Kind: kind, Op: op, Proto: proto, Err: e}
}

// unquoted returns the content of a JSON string, still escaped; other values are returned
// unchanged.
func unquoted(text []byte) []byte {
	if len(text) >= 2 && text[0] == '"' {
		return text[1 : len(text)-1]
	}
	return text
}
