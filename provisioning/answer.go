package provisioning

import (
	"bytes"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/hubline-iot/hubline/internal/jsonscan"
	"github.com/hubline-iot/hubline/internal/nextwire"
	"github.com/hubline-iot/hubline/internal/operr"
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/internal/texts"
	"github.com/hubline-iot/hubline/internal/times"
	"github.com/hubline-iot/hubline/transport"
)

// reading is an answer that is no failure.
type reading struct {
	// operation is the operation's id; the answer to a poll may lack it.
	operation string
	// after is the delay that the service asks for before the next poll; 0: none.
	after time.Duration
	// assignment is the result; nil while the service works on it.
	assignment *Assignment
	// over: the operation has ended without an assignment, and polls would get the same answer.
	over bool
}

// maxOperation bounds the id of an operation, which goes into topics and paths.
const maxOperation = 1024

// read interprets an answer. mqttv5 is Options.MQTTv5. An error is a *transport.Error of Scope
// Operation.
func read(a *Answer, mqttv5 bool) (reading, error) {
	after := min(max(a.RetryAfter, 0), times.MaxRetryAfter)
	r := reading{after: after}
	switch {
	case a.Status != 0 && statuscode.Of(a.Status, statuscode.Provisioning).About != statuscode.Fine:
		return r, refusal(a.Status, after, a.Body, "message")
	case len(a.Body) > MaxAnswer:
		return r, violation("the answer has " + strconv.Itoa(len(a.Body)) + " bytes")
	case !jsonscan.IsObject(a.Body):
		return r, violation("the answer is not a JSON object" + hint("; a proxy or a captive portal may have given it"))
	case a.Status == 0 && jsonscan.Value(a.Body, "errorCode") != nil:
		return r, refusal(0, after, a.Body, "message")
	}
	switch r.operation = jsonscan.TextOf(a.Body, "operationId"); {
	case len(r.operation) > maxOperation:
		return r, violation("the operation's id has " + strconv.Itoa(len(r.operation)) + " bytes")
	case !utf8.ValidString(r.operation): // cannot stand in a poll over AMQP
		return r, violation("the operation's id is not UTF-8")
	case r.operation == ".", r.operation == "..": // would name another resource in a path
		return r, violation("the operation's id is " + texts.Quote(r.operation))
	}
	state := jsonscan.Value(a.Body, "registrationState")
	status := jsonscan.TextOf(a.Body, "status")
	if status == "" {
		status = jsonscan.TextOf(state, "status")
	}
	switch {
	case texts.EqualFold(status, "assigning"), texts.EqualFold(status, "unassigned"), status == "" && a.Status == 202:
		return r, nil
	case texts.EqualFold(status, "assigned"):
		var err error
		r.assignment, err = readAssignment(state, mqttv5)
		return r, err
	}
	r.over = true
	switch {
	case texts.EqualFold(status, "disabled"), texts.EqualFold(status, "blacklisted"):
		return r, refused(transport.Forbidden, after, &transport.StatusError{Status: a.Status,
			Meaning: "the enrollment is disabled", Hint: hint("enable the enrollment")})
	case texts.EqualFold(status, "failed"):
		return r, refusal(a.Status, after, state, "errorMessage")
	}
	return r, refused(transport.Unknown, after, &transport.StatusError{Status: a.Status,
		Message: quoted("registration status ", status)})
}

// unsupported returns the error for a hub with which the program cannot speak. Another answer would
// name the same hub: the error is final.
func unsupported(profile []byte, advice string) *transport.Error {
	text := jsonscan.Text(profile)
	if text == "" { // it may be no string
		text = string(profile)
	}
	return refused(transport.Unsupported, 0, &transport.StatusError{Status: 200, Hint: advice,
		Message: quoted("the hub has the connection profile ", text)})
}

// readAssignment reads the registration state of an assigned device. The profile of its hub comes
// in any letter case; a missing one is classic. Decision: one that is no text is unknown.
func readAssignment(state []byte, mqttv5 bool) (*Assignment, error) {
	profile := jsonscan.Value(state, "connectionProfile")
	a := &Assignment{Hub: jsonscan.TextOf(state, "assignedHub"), DeviceID: jsonscan.TextOf(state, "deviceId"),
		ConnectionProfile: jsonscan.Text(profile), Substatus: jsonscan.TextOf(state, "substatus"),
		Payload: append([]byte(nil), jsonscan.Value(state, "payload")...)}
	switch {
	case profile == nil, texts.EqualFold(a.ConnectionProfile, nextwire.ProfileClassic), a.MQTTv5() && mqttv5:
	case a.MQTTv5():
		return nil, unsupported(profile, hint("set Options.MQTTv5 if the program has a transport for such hubs"))
	default:
		return nil, unsupported(profile, hint("a newer version of the module may know it"))
	}
	if (&transport.Credentials{Host: a.Hub, DeviceID: "d"}).Validate() != nil {
		return nil, violation("the assignment names no hub" + quoted(": ", a.Hub))
	}
	if (&transport.Credentials{Host: "h", DeviceID: a.DeviceID}).Validate() != nil {
		return nil, violation("the assignment names no device" + quoted(": ", a.DeviceID))
	}
	var err error
	if a.Chain, err = readChain(state); err != nil {
		return nil, err
	}
	return a, nil
}

// refusal returns the error for a refusal. text is the member of about that has the service's text.
func refusal(status int, after time.Duration, about []byte, text string) *transport.Error {
	code := numberMember(about, "errorCode")
	if code < 100_000 {
		code = 0
	}
	m := meaning(status, code)
	if code == 0 && (m.kind == transport.Protocol || isPage(about)) { // such as a redirection
		m.hint = hint("a proxy or a captive portal may have answered in place of the service")
		if statuscode.Of(status, statuscode.Provisioning).About == statuscode.Identity {
			m.kind = transport.Protocol
		}
	}
	if status == 0 {
		status = code / 1000
	}
	return refused(m.kind, after, &transport.StatusError{Status: status, Code: code, Meaning: m.meaning,
		Message: peerText(jsonscan.TextOf(about, text)), TrackingID: peerText(jsonscan.TextOf(about, "trackingId")),
		Hint: m.hint})
}

// Failure returns the failure that the answer to a call is, with the Kind of the service's code or
// of the status; nil for a success. Its cause is a *transport.StatusError.
func (a *Answer) Failure() *transport.Error {
	if statuscode.Of(a.Status, statuscode.Provisioning).About == statuscode.Fine &&
		jsonscan.Value(a.Body, "errorCode") == nil {
		return nil
	}
	return about(refusal(a.Status, a.RetryAfter, a.Body, "message"))
}

// isPage reports whether the body of a refusal is a web page, which the service never gives.
func isPage(body []byte) bool {
	body = bytes.TrimSpace(body)
	return len(body) > 0 && body[0] == '<'
}

const service = "provisioning service"

func refused(kind transport.Kind, after time.Duration, e *transport.StatusError) *transport.Error {
	e.Service = service
	return &transport.Error{Kind: kind, Op: transport.OpRegister, RetryAfter: after, Err: e}
}

// violation returns the error for an answer that is not one. Another one may be.
func violation(text string) *transport.Error {
	return &transport.Error{Kind: transport.Protocol, Op: transport.OpRegister,
		Err: operr.Violation(service + ": " + text)}
}
