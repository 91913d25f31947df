package statuscode

import (
	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/transport"
)

// TwinKind returns the Kind of a status in a twin reply. good reports a success.
func TwinKind(status int) (kind transport.Kind, good bool) {
	m := Of(status, Twin)
	return m.Kind, m.About == Fine
}

// maxMessage is the length after which a message is cut off.
const maxMessage = 200

// TwinRefusal returns the error of an unsuccessful reply to a request for the twin. body is
// the hub's, JSON or not.
func TwinRefusal(op transport.Op, proto string, status int, body []byte) *transport.Error {
	kind, _ := TwinKind(status)
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
