package http

import (
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/hubline-iot/hubline/internal/way"
	"github.com/hubline-iot/hubline/retrypolicy"
	"github.com/hubline-iot/hubline/transport"
)

const proto = "http"

// protocol is what the connection below is made for.
var protocol = way.Protocol{Name: proto, Secure: "443", Plain: "80", Kind: protocolKind}

// Texts of net/http that stand for errors without a type. A test notices when they change.
const (
	malformed   = "malformed HTTP"
	longHeaders = "response headers exceeded"
)

// protocolKind is for way.Protocol: what a failed exchange means while dialing.
func protocolKind(err error) (kind transport.Kind, hint string, known bool) {
	if e, is := errors.AsType[*StatusError](err); is {
		return verdictOf(e).kind, "", true
	}
	if text := err.Error(); strings.Contains(text, malformed) || strings.Contains(text, longHeaders) {
		return transport.Protocol, "; check host and port", true
	}
	return 0, "", false
}

// failed is the error of one operation.
func failed(op transport.Op, kind transport.Kind, cause error) *transport.Error {
	return &transport.Error{Kind: kind, Op: op, Proto: proto, Err: cause}
}

// lost is the error for the end of a live session. The loss of one is a network's, or a time-out's, unless its cause says better: the hub, the token source or TLS.
func lost(cause error) *transport.Error {
	e := protocol.Error(cause)
	if e.Kind == transport.Protocol && transport.Find(cause) == nil {
		e.Kind = transport.Network // the hub spoke HTTP before: what came was damaged
	}
	e.Op = transport.OpRun
	return e
}

// refusal is an answer of the hub's that is no success.
type refusal struct {
	verdict
	after time.Duration
	cause *StatusError
}

// operation is the error about one message or request.
func (r *refusal) operation(op transport.Op) *transport.Error {
	return &transport.Error{Kind: r.kind, Op: op, Proto: proto, RetryAfter: r.after, Err: r.cause}
}

// connection is the error that ends a session, or a dial.
func (r *refusal) connection(op transport.Op) *transport.Error {
	return &transport.Error{Kind: r.kind, Scope: transport.Connection, Op: op, Proto: proto, RetryAfter: r.after, Err: r.cause}
}

// refusalOf says what an answer means; nil for a success.
func refusalOf(status int, header http.Header, body []byte, now time.Time) *refusal {
	if statusVerdict(status).about == fine {
		return nil
	}
	r := &refusal{cause: statusError(status, header, body)}
	r.verdict = verdictOf(r.cause)
	r.after, _ = retrypolicy.RetryAfterHeaders(header.Get, now)
	return r
}

// maxText bounds what is kept of a hub's text.
const maxText = 1 << 10

// statusError reads what the hub says about an error. Header "iothub-errorcode" has the name; the body has one of two forms:
//
//	{"Message":"{\"errorCode\":404001,\"trackingId\":\"..\",\"message\":\"..\"}"}
//	{"Message":"ErrorCode:DeviceNotFound;no such device","ExceptionMessage":"Tracking ID:.."}
//
// What is neither is not shown: it may be a page of some gateway's.
func statusError(status int, header http.Header, body []byte) *StatusError {
	e := &StatusError{Status: status, Name: header.Get("iothub-errorcode"), TrackingID: header.Get("x-ms-request-id")}
	var outer struct{ Message, ExceptionMessage string }
	if json.Unmarshal(body, &outer) == nil {
		var inner struct {
			ErrorCode           json.Number
			TrackingID, Message string
		}
		if json.Unmarshal([]byte(outer.Message), &inner) == nil {
			e.Code, _ = strconv.Atoi(string(inner.ErrorCode))
			e.Message = inner.Message
			e.TrackingID = or(inner.TrackingID, e.TrackingID)
		} else {
			e.Message = outer.Message
			if coded, found := strings.CutPrefix(outer.Message, "ErrorCode:"); found {
				name, text, _ := strings.Cut(coded, ";")
				e.Name, e.Message = or(e.Name, name), text
			}
			if _, id, found := strings.Cut(outer.ExceptionMessage, "Tracking ID:"); found {
				e.TrackingID = or(id, e.TrackingID)
			}
		}
	}
	e.Name, e.Message, e.TrackingID = clean(e.Name), clean(e.Message), clean(e.TrackingID)
	if e.Code == 0 {
		e.Code = codeNamed[e.Name]
	}
	if e.Code/1000 != status && e.Code != 0 && codeTable[e.Code].code == 0 {
		e.Code = 0 // no code of a hub's
	}
	if e.Name == "" {
		e.Name = codeTable[e.Code].name
	}
	return e
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// clean makes a peer's text fit to be shown: short, valid, on one line, and without the signature of a token that it may repeat.
func clean(text string) string {
	if len(text) > maxText {
		text = text[:maxText] + "..."
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == 0xfffd {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, " "))
	return strings.TrimSpace(signature.ReplaceAllString(text, "sig=(hidden)"))
}

// signature is the secret part of a token.
var signature = regexp.MustCompile(`(?i)sig=[^& ,;"'<>]*`)
